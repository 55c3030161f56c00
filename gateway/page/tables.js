// Markdown's tables.

import { parseInlines } from "./inlines.js";
import { endOf, isBlank, trimmed } from "./lines.js";

export function readTable(lines, at) {
  const aligns = beginsTable(lines, at);
  if (!aligns) return null;
  const rows = [];
  let next = at + 2;
  while (next < lines.length && !isBlank(lines[next]) && lines[next].text.includes("|")) {
    const cells = cellsOf(lines[next]).map((cell) => parseInlines([cell]));
    rows.push({ from: lines[next].from, to: endOf(lines[next]), cells });
    next += 1;
  }
  const head = cellsOf(lines[at]).map((cell) => parseInlines([cell]));
  return { block: { type: "table", aligns, head, rows }, next };
}

// The alignments of the columns where a table begins, otherwise null.
export function beginsTable(lines, at) {
  if (at + 1 >= lines.length || !lines[at].text.includes("|")) return null;
  const aligns = alignments(lines[at + 1]);
  return aligns !== null && aligns.length === cellsOf(lines[at]).length ? aligns : null;
}

function alignments(line) {
  if (!line.text.includes("-") || !/^[-:| \t]+$/.test(line.text)) return null;
  const cells = cellsOf(line).map(({ text }) => text);
  return cells.every((text) => /^:?-+:?$/.test(text)) ? cells.map(alignment) : null;
}

function alignment(text) {
  const right = text.endsWith(":");
  if (text.startsWith(":")) return right ? "center" : "left";
  return right ? "right" : null;
}

// A row's cells, without the bars at its ends. A bar behind a backslash is text.
function cellsOf(line) {
  const row = trimmed(line);
  const ends = barsOf(row.text);
  const begins = [0, ...ends.map((end) => end + 1)];
  ends.push(row.text.length);
  const cells = begins.map((begin, index) => (
    trimmed({ from: row.from + begin, text: row.text.slice(begin, ends[index]) })
  ));
  if (cells.length > 1 && row.text.startsWith("|")) cells.shift();
  if (cells.length > 1 && ends.at(-2) === row.text.length - 1) cells.pop();
  return cells;
}

function barsOf(text) {
  const bars = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "|") bars.push(at);
  }
  return bars;
}
