// Questions that the page itself asks, in the browser's own modal dialogs.

import { el } from "./dom.js";
import { iconButton } from "./icons.js";

// The text that was entered, or null. `check(text)` says what is wrong with it, or null.
export function askText({ title, explain = "", label, value = "", type = "text", action = "Save", check }) {
  const field = el("input", { id: "dialog-field", type, autocomplete: "off", spellcheck: "false" });
  field.value = value;
  const problem = el("p", { class: "problem", id: "dialog-problem", role: "alert" });
  field.setAttribute("aria-describedby", "dialog-problem");
  return ask(title, [
    explain ? el("p", {}, explain) : null,
    el("label", { for: "dialog-field" }, label),
    field,
    problem,
  ], action, () => {
    problem.textContent = check?.(field.value) ?? "";
    return problem.textContent === "" ? { value: field.value } : null;
  }).then((answer) => answer?.value ?? null);
}

// The value of the choice that was made, or null. `choices` are [value, label, explanation].
export function askChoice({ title, choices }) {
  return new Promise((resolve) => {
    const buttons = choices.map(([value, label, explain]) => (
      el(
        "button",
        { type: "button", class: "choice", onclick: () => { resolve(value); dialog.close(); } },
        el("span", {}, label),
        el("span", { class: "hint" }, explain),
      )
    ));
    const dialog = open(title, buttons, () => resolve(null));
  });
}

// Only to be read.
export function tell(title, content) {
  open(title, content, () => {});
}

function ask(title, content, action, read) {
  return new Promise((resolve) => {
    const form = el(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          const answer = read();
          if (answer === null) return;
          resolve(answer);
          dialog.close();
        },
      },
      content,
      el(
        "div",
        { class: "dialog-actions" },
        el("button", { type: "button", class: "word-button", onclick: () => dialog.close() }, "Cancel"),
        el("button", { type: "submit", class: "word-button primary" }, action),
      ),
    );
    const dialog = open(title, [form], () => resolve(null));
    dialog.querySelector("input")?.select();
  });
}

function open(title, content, closed) {
  const dialog = el(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    el(
      "div",
      { class: "dialog-head" },
      el("h2", { id: "dialog-title" }, title),
      iconButton("close", "Close", () => dialog.close()),
    ),
    content,
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
