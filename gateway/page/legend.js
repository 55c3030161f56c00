// Who said how much of an answer: a bar and its legend.

import { el } from "./dom.js";
import { count, percent } from "./format.js";
import { describeSource, inOrder, placeClass, TARGET } from "./sources.js";

// `trace` null, or empty: what the colours would mean.
export function legend(trace) {
  const counts = trace ? trace.counts() : new Map();
  if (counts.size === 0) return el("p", { class: "hint" }, "The tokens of an answer by who proposed them.");
  const total = trace.length;
  const sources = inOrder(counts.keys());
  const shares = sources.map((source) => share(source, counts.get(source) / total));
  const bar = el("div", { class: "shares", "aria-hidden": "true" }, shares);
  const entries = sources.map((source) => entry(source, counts.get(source), total));
  return el("div", {}, bar, el("ul", { class: "legend" }, entries));
}

// A sample of how its tokens look.
export function swatch(source) {
  const name = source === TARGET ? "swatch" : `swatch drafted ${placeClass(source)}`;
  return el("span", { class: name, "aria-hidden": "true" }, "ab");
}

function share(source, part) {
  const name = source === TARGET ? "share share-target" : `share ${placeClass(source)}`;
  const piece = el("span", { class: name });
  piece.style.flexGrow = String(part);
  return piece;
}

function entry(source, tokens, total) {
  const { label } = describeSource(source);
  const numbers = `${count(tokens, "token")}, ${percent(tokens / total)}`;
  return el(
    "li",
    {},
    swatch(source),
    el("span", { class: "legend-name" }, label),
    el("span", { class: "legend-count" }, numbers),
  );
}
