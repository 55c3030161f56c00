// The keyboard's shortcuts. Single keys act only where nothing is being written, and can be
// switched off: with speech input a letter may be a word.

import { el } from "./dom.js";
import { tell } from "./dialogs.js";

const WRITES = "input, textarea, select, [contenteditable]";

export class Shortcuts {
  // `actions` are [key, explanation, action].
  constructor({ actions, escape, enabled, changed }) {
    this.actions = actions;
    this.escape = escape;
    this.enabled = enabled;
    this.changed = changed;
    document.addEventListener("keydown", (event) => this.#press(event));
  }

  list() {
    const rows = [
      ["Enter", "Send, in the question"],
      ["Shift+Enter", "A new line in the question"],
      ["Esc", "Stop the answer, close what is open"],
      ["← →", "From token to token, on “Inspect tokens”"],
      ...this.actions.map(([key, explanation]) => [key, explanation]),
    ];
    const terms = rows.flatMap(([key, words]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)]);
    const box = el("input", {
      type: "checkbox",
      id: "single-keys",
      checked: this.enabled,
      onchange: () => {
        this.enabled = box.checked;
        this.changed(box.checked);
      },
    });
    tell("Shortcuts", [
      el("dl", { class: "shortcuts" }, terms),
      el("p", { class: "switch" }, box, el("label", { for: "single-keys" }, "Single keys act outside of fields")),
    ]);
  }

  #press(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      this.escape();
      return;
    }
    if (!this.enabled || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.(WRITES)) return;
    const found = this.actions.find(([key]) => key === event.key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  }
}
