// A question in the thread, which can be changed and asked again.

import { copyButton } from "./clipboard.js";
import { el } from "./dom.js";
import { iconButton } from "./icons.js";

export class QuestionView {
  // `does.edit(id, text)` asks the changed question; what followed the old one goes.
  constructor(message, does) {
    this.message = message;
    this.does = does;
    const label = `label-${message.id}`;
    this.body = el("div", { class: "question-body" });
    this.node = el(
      "article",
      { class: "question", "aria-labelledby": label, "data-message": message.id },
      el("h3", { class: "who", id: label }, "You"),
      this.body,
    );
    this.#read();
  }

  update() {}

  edit() {
    const id = `edit-${this.message.id}`;
    const field = el("textarea", { id, rows: "3" });
    field.value = this.message.text;
    const form = el(
      "form",
      {
        class: "edit",
        onsubmit: (event) => {
          event.preventDefault();
          if (field.value.trim() !== "") this.does.edit(this.message.id, field.value);
        },
        onkeydown: (event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            this.#read();
          } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            form.requestSubmit();
          }
        },
      },
      el("label", { class: "visually-hidden", for: id }, "Change the question"),
      field,
      el(
        "div",
        { class: "edit-actions" },
        el("p", { class: "hint" }, "What follows it will be replaced."),
        el("button", { type: "button", class: "word-button", onclick: () => this.#read() }, "Cancel"),
        el("button", { type: "submit", class: "word-button primary" }, "Ask"),
      ),
    );
    this.body.replaceChildren(form);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }

  #read() {
    this.pencil = iconButton("edit", "Change the question", () => this.edit());
    this.body.replaceChildren(
      el("div", { class: "bubble" }, this.message.text),
      el("div", { class: "actions" }, this.pencil, copyButton(() => this.message.text, "Copy the question")),
    );
  }
}
