// Copying text, also where the page is no secure context (another machine over plain HTTP).

import { el } from "./dom.js";
import { icon, iconButton } from "./icons.js";

const SHOWN_MS = 1500;

// A button that copies what `text` returns and says so for a moment.
export function copyButton(text, label) {
  const button = iconButton("copy", label, async () => {
    const copied = await copy(text());
    const said = copied ? "Copied" : "The browser does not let this page copy";
    button.replaceChildren(icon(copied ? "check" : "close"));
    button.title = said;
    button.setAttribute("aria-label", said);
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.title = label;
      button.setAttribute("aria-label", label);
    }, SHOWN_MS);
  });
  return button;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

function copySelected(text) {
  const field = el("textarea", { class: "visually-hidden", "aria-hidden": "true" });
  field.value = text;
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return copied;
}
