// Light, dark, or as the system is: the setting is kept, and early.js applies it before the page
// is drawn.

const NAMES = ["auto", "light", "dark"];
const KEY = "outpace.theme";
const WORDS = { auto: "as the system", light: "light", dark: "dark" };

export class Theme {
  constructor(storage, button) {
    this.storage = storage;
    this.button = button;
    button.addEventListener("click", () => this.next());
    this.#apply(storage.getItem(KEY) ?? "auto");
  }

  next() {
    this.#apply(NAMES[(NAMES.indexOf(this.name) + 1) % NAMES.length]);
    this.storage.setItem(KEY, this.name);
  }

  #apply(name) {
    this.name = NAMES.includes(name) ? name : "auto";
    if (this.name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.name;
    const label = `Theme: ${WORDS[this.name]}`;
    this.button.title = label;
    this.button.setAttribute("aria-label", label);
  }
}
