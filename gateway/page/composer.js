// Where questions are written.

import { show } from "./dom.js";

const TALLEST_PX = 240;

export class Composer {
  // `does.send(text)` says whether it took the text; `does.stop()` ends what is being answered.
  constructor({ form, field, send, stop, does }) {
    this.field = field;
    this.sendButton = send;
    this.stopButton = stop;
    this.does = does;
    this.busy = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    field.addEventListener("input", () => this.#fit());
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    stop.addEventListener("click", () => does.stop());
    this.setBusy(false);
    this.#fit();
  }

  focus() {
    this.field.focus();
  }

  write(text) {
    this.field.value = text;
    this.#fit();
    this.focus();
  }

  setBusy(busy) {
    const focused = document.activeElement === (this.busy ? this.stopButton : this.sendButton);
    this.busy = busy;
    show(this.sendButton, !busy);
    show(this.stopButton, busy);
    // Focus must not fall off the page with the button that had it.
    if (focused) (busy ? this.stopButton : this.field).focus();
  }

  #send() {
    const text = this.field.value;
    if (this.busy || text.trim() === "" || !this.does.send(text)) return;
    this.field.value = "";
    this.#fit();
  }

  #fit() {
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(TALLEST_PX, this.field.scrollHeight)}px`;
    this.sendButton.disabled = this.field.value.trim() === "";
  }
}
