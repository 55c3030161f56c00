// A part of the page beside the conversation. Where there is room it stands there; otherwise it
// lies over the conversation until it is closed.

import { el } from "./dom.js";

export class Drawer {
  // `room` is the media query that says whether there is room; `covered` is what it lies over.
  constructor({ node, button, room, covered }) {
    this.node = node;
    this.button = button;
    this.covered = covered;
    this.room = window.matchMedia(room);
    this.backdrop = el("div", { class: "backdrop", hidden: true, onclick: () => this.toggle(false) });
    node.tabIndex = -1;
    node.before(this.backdrop);
    button.addEventListener("click", () => this.toggle());
    node.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.lies) {
        event.stopPropagation();
        this.toggle(false);
      }
    });
    this.room.addEventListener("change", () => this.#set(this.room.matches));
    this.#set(this.room.matches);
  }

  // Whether it lies over the conversation now.
  get lies() {
    return this.open && !this.room.matches;
  }

  toggle(open = !this.open) {
    this.#set(open);
    if (this.lies) this.node.focus();
    else if (!this.room.matches) this.button.focus();
  }

  // Close it where it lies over what was chosen in it.
  yield() {
    if (this.lies) this.#set(false);
  }

  #set(open) {
    this.open = open;
    this.node.hidden = !open;
    this.node.classList.toggle("lies", this.lies);
    this.backdrop.hidden = !this.lies;
    this.covered.inert = this.lies;
    this.button.setAttribute("aria-expanded", String(open));
  }
}
