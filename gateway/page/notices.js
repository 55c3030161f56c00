// What the page says beside the conversation: to everybody in a line, to screen readers aloud.

import { el } from "./dom.js";
import { iconButton } from "./icons.js";

const SHOWN_MS = 12_000;

export class Notices {
  // `line` shows one notice at a time; `polite` and `quick` are read by screen readers.
  constructor({ line, polite, quick }) {
    this.line = line;
    this.polite = polite;
    this.quick = quick;
    this.timer = null;
    for (const type of ["pointerenter", "focusin"]) line.addEventListener(type, () => this.#hold());
    for (const type of ["pointerleave", "focusout"]) line.addEventListener(type, () => this.#count());
  }

  // Show `text`; `undo` is what the button beside it does.
  show(text, undo = null) {
    const button = undo && el("button", {
      type: "button",
      class: "word-button",
      onclick: () => {
        this.clear();
        undo();
      },
    }, "Undo");
    this.line.replaceChildren(el("p", {}, text), button ?? "", iconButton("close", "Dismiss", () => this.clear()));
    this.line.hidden = false;
    this.announce(undo ? `${text} There is a button to undo it.` : text);
    this.#count();
  }

  clear() {
    this.#hold();
    this.line.hidden = true;
    this.line.replaceChildren();
  }

  // Read when the reader has nothing else to say: the end of an answer.
  announce(text) {
    this.polite.textContent = "";
    this.polite.textContent = text;
  }

  // The answer to a key: each one replaces the one before.
  answer(text) {
    this.quick.textContent = text;
  }

  #hold() {
    clearTimeout(this.timer);
  }

  #count() {
    this.#hold();
    if (!this.line.hidden) this.timer = setTimeout(() => this.clear(), SHOWN_MS);
  }
}
