// The page's icons, drawn with strokes on a field of 20 by 20.

import { el, svg } from "./dom.js";

const PATHS = {
  chats: "M3 5h14M3 10h14M3 15h9",
  check: "M4 10.5l4 4 8-9",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7.5 7.5h9v9h-9zM12.5 7.5v-4h-9v9h4",
  down: "M10 4v11M5 10.5l5 5 5-5",
  download: "M10 3v9.5M6 9l4 4 4-4M4 17h12",
  edit: "M4 16l.8-3.6L13.4 3.8l2.8 2.8-8.6 8.6z",
  help: "M7.6 7.6a2.5 2.5 0 1 1 3.6 2.3c-.8.4-1.2 1-1.2 1.9M10 14.6v.2",
  panel: "M3 4h14v12H3zM12.5 4v12",
  plus: "M10 4v12M4 10h12",
  retry: "M15.6 7.5A6.2 6.2 0 1 0 16.2 11M16 3.5v4h-4",
  send: "M10 16V4.5M5 9.5l5-5 5 5",
  stop: "M6 6h8v8H6z",
  theme: "M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14",
  tokens: "M3 6h5v3H3zM10 6h7v3h-7zM3 12h7v3H3zM12 12h5v3h-5z",
  trash: "M4 6h12M8 6V4h4v2M5.5 6l.8 10.5h7.4L14.5 6",
  upload: "M10 12.5V3M6 6.5l4-4 4 4M4 17h12",
};

export function icon(name) {
  const path = svg("path", { d: PATHS[name] });
  return svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 20 20", "aria-hidden": "true" }, path);
}

// A button that shows an icon; its name is what screen readers say and what a pointer is told.
export function iconButton(name, label, onclick, attributes = {}) {
  return el(
    "button",
    { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name),
  );
}

// A button with an icon and words.
export function wordButton(name, label, onclick, attributes = {}) {
  const words = el("span", {}, label);
  return el("button", { type: "button", class: "word-button", onclick, ...attributes }, icon(name), words);
}
