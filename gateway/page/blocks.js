// Markdown's blocks, with the place in the source of everything that is text.
//
// What is not finished yet (an answer that streams) is read as if it were: an open fence is code
// to the end. HTML is text.

import { parseInlines } from "./inlines.js";
import {
  columns, drop, endOf, indentOf, isBlank, splitLines, trimmed, trimmedStart, unindent,
} from "./lines.js";
import { beginsTable, readTable } from "./tables.js";

const DEEPEST = 12;
const FENCE = /^[ \t]*(`{3,}|~{3,})([^\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const TASK = /^\[([ xX])\] /;
const WIDEST_GAP = 4;

// The blocks of `source`; each has `from` and `to`, the lines that it is made of.
export function parseMarkdown(source) {
  return parseLines(splitLines(source));
}

// The same of lines; `line` says which of them a block begins with.
export function parseLines(lines) {
  return parseBlocks(lines, 0);
}

function parseBlocks(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const { block, next } = readBlock(lines, at, depth);
    blocks.push({ ...block, line: at, from: lines[at].from, to: endOf(lines[next - 1]) });
    at = next;
  }
  return blocks;
}

function readBlock(lines, at, depth) {
  return (
    readFence(lines, at) ??
    readHeading(lines, at) ??
    readRule(lines, at) ??
    (depth < DEEPEST ? readQuote(lines, at, depth) ?? readList(lines, at, depth) : null) ??
    readTable(lines, at) ??
    readParagraph(lines, at)
  );
}

function readFence(lines, at) {
  const opened = openFence(lines[at]);
  if (!opened) return null;
  const body = [];
  let next = at + 1;
  let closed = false;
  while (next < lines.length && !closed) {
    closed = closesFence(lines[next], opened.marks);
    if (!closed) body.push(unindent(lines[next], opened.indent));
    next += 1;
  }
  return { block: { type: "code", language: opened.language, closed, lines: body }, next };
}

function openFence(line) {
  const found = FENCE.exec(line.text);
  if (!found || (found[1][0] === "`" && found[2].includes("`"))) return null;
  return { indent: indentOf(line), marks: found[1], language: found[2].trim().split(/\s+/)[0] };
}

function closesFence(line, marks) {
  const text = line.text.trim();
  return text.length >= marks.length && text === marks[0].repeat(text.length);
}

function readHeading(lines, at) {
  const found = HEADING.exec(lines[at].text);
  if (!found) return null;
  const { from, text } = trimmed(drop(lines[at], found[0].length));
  const closing = /(^|[ \t])#+$/.exec(text);
  const content = closing ? text.slice(0, closing.index).trimEnd() : text;
  const children = parseInlines([{ from, text: content }]);
  return { block: { type: "heading", level: found[1].length, children }, next: at + 1 };
}

function readRule(lines, at) {
  return isRule(lines[at]) ? { block: { type: "rule" }, next: at + 1 } : null;
}

function isRule(line) {
  const marks = line.text.replace(/[ \t]/g, "");
  return marks.length >= 3 && "-*_".includes(marks[0]) && marks === marks[0].repeat(marks.length);
}

function readQuote(lines, at, depth) {
  if (!QUOTE.test(lines[at].text)) return null;
  const inner = [];
  let next = at;
  while (next < lines.length) {
    const mark = QUOTE.exec(lines[next].text);
    if (!mark && !continues(lines, next, inner.at(-1))) break;
    inner.push(mark ? drop(lines[next], mark[0].length) : lines[next]);
    next += 1;
  }
  return { block: { type: "quote", children: parseBlocks(inner, depth + 1) }, next };
}

function readList(lines, at, depth) {
  const first = markerOf(lines[at]);
  if (!first) return null;
  const items = [];
  let loose = false;
  let next = at;
  while (next < lines.length && !isRule(lines[next])) {
    const mark = markerOf(lines[next]);
    if (!mark || mark.ordered !== first.ordered) break;
    if (items.length > 0) loose ||= next > items.at(-1).next;
    items.push(readItem(lines, next, mark, depth));
    loose ||= items.at(-1).spaced;
    next = skipBlank(lines, items.at(-1).next);
  }
  const block = { type: "list", ordered: first.ordered, start: first.number, loose, items };
  return { block, next: items.at(-1).next };
}

// An item goes on with the lines that are indented behind its mark. Models indent less than the
// rules ask: for a list or a fence in it two columns are enough.
function readItem(lines, at, mark, depth) {
  const inner = [drop(lines[at], mark.length)];
  let fence = openFence(inner[0]);
  let end = at + 1;
  for (let next = at + 1; next < lines.length; next += 1) {
    const line = lines[next];
    const indent = indentOf(line);
    const opens = markerOf(line) !== null || openFence(line) !== null;
    const inside = indent >= mark.indent + 2 && (fence || opens);
    const lazy = !fence && !opens && continues(lines, next, inner.at(-1));
    if (!isBlank(line) && indent < mark.content && !inside && !lazy) break;
    inner.push(unindent(line, mark.content));
    if (!isBlank(line)) end = next + 1;
    fence = fence ? (closesFence(line, fence.marks) ? null : fence) : openFence(line);
  }
  const kept = inner.slice(0, end - at);
  const task = TASK.exec(kept[0].text);
  if (task) kept[0] = drop(kept[0], task[0].length);
  return {
    done: task ? task[1] !== " " : null,
    spaced: kept.some(isBlankBehindFirst),
    next: end,
    from: lines[at].from,
    to: endOf(lines[end - 1]),
    children: parseBlocks(kept, depth + 1),
  };
}

function isBlankBehindFirst(line, index) {
  return index > 0 && isBlank(line);
}

// `indent` and `content` are columns: where the mark is and where what follows it begins; `length`
// are the characters up to there.
function markerOf(line) {
  const found = MARKER.exec(line.text);
  if (!found) return null;
  const [, before, mark, gap] = found;
  const kept = gap.length >= 1 && gap.length <= WIDEST_GAP ? gap.length : Math.min(1, gap.length);
  const length = before.length + mark.length + kept;
  const ordered = mark.length > 1;
  return {
    indent: columns(line.text, before.length),
    content: columns(line.text, length) + (gap === "" ? 1 : 0),
    length,
    ordered,
    number: ordered ? Number.parseInt(mark, 10) : null,
    empty: length === line.text.length,
  };
}

function readParagraph(lines, at) {
  let next = at + 1;
  while (next < lines.length && !isBlank(lines[next]) && !interrupts(lines, next)) next += 1;
  const children = parseInlines(lines.slice(at, next).map(trimmedStart));
  return { block: { type: "paragraph", children }, next };
}

// Whether the line at `at` goes on with the paragraph that `before` ends, though it has no mark.
function continues(lines, at, before) {
  const open = before !== undefined && !isBlank(before) && !openFence(before);
  return open && !HEADING.test(before.text) && !isBlank(lines[at]) && !interrupts(lines, at);
}

// Whether something begins at `at` that ends a paragraph.
function interrupts(lines, at) {
  const line = lines[at];
  const mark = markerOf(line);
  if (mark && !mark.empty && (!mark.ordered || mark.number === 1)) return true;
  return (
    openFence(line) !== null || HEADING.test(line.text) || isRule(line) ||
    QUOTE.test(line.text) || beginsTable(lines, at) !== null
  );
}

function skipBlank(lines, at) {
  let next = at;
  while (next < lines.length && isBlank(lines[next])) next += 1;
  return next;
}
