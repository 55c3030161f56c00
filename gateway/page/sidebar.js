// The list of conversations.

import { el } from "./dom.js";
import { when } from "./format.js";
import { iconButton } from "./icons.js";

export class Sidebar {
  // `does` are open(id), rename(id), export(id) and remove(id).
  constructor(list, does) {
    this.list = list;
    this.does = does;
  }

  show(entries, current, now = Date.now()) {
    const focused = document.activeElement?.closest?.("[data-conversation]")?.dataset.conversation;
    this.list.replaceChildren(...entries.map((entry) => this.#row(entry, entry.id === current, now)));
    if (focused) this.list.querySelector(`[data-conversation="${focused}"] button`)?.focus();
  }

  #row({ id, title, updated }, isCurrent, now) {
    const opens = el(
      "button",
      {
        type: "button",
        class: "chat-open",
        "aria-current": isCurrent ? "true" : null,
        onclick: () => this.does.open(id),
      },
      el("span", { class: "chat-title" }, title),
      el("span", { class: "chat-when" }, when(updated, now)),
    );
    const actions = el(
      "div",
      { class: "chat-actions" },
      iconButton("edit", `Rename ${title}`, () => this.does.rename(id)),
      iconButton("download", `Export ${title}`, () => this.does.export(id)),
      iconButton("trash", `Delete ${title}`, () => this.does.remove(id)),
    );
    const name = isCurrent ? "chat current" : "chat";
    return el("li", { class: name, "data-conversation": id }, opens, actions);
  }
}
