// Markdown within a block: emphasis, code, links, line breaks, with the place in the source of all
// text. Nodes: { type: "text", from, to }, { type: "break" }, { type: "code", children: texts },
// { type: "strong" | "em" | "del" | "link", children }, links with the `href` they may lead to.

import { emphasised, runAt } from "./emphasis.js";
import { hrefOf, readTarget } from "./links.js";

const PLAIN = /[^\\`*_~[\]!<\nh]+/y;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const AUTOLINK = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const ADDRESS = /https?:\/\/[^\s<>"`|]{1,2000}/y;

// The nodes of a block whose lines are { from, text }.
export function parseInlines(lines) {
  return new Inlines(lines).parse();
}

class Inlines {
  constructor(lines) {
    this.text = lines.map((line) => line.text).join("\n");
    this.lines = lines;
    this.line = 0;
    this.lineBegin = 0;
    this.at = 0;
    this.nodes = [];
    this.brackets = [];
  }

  parse() {
    while (this.at < this.text.length) this.step();
    return merged(emphasised(this.nodes));
  }

  step() {
    const character = this.text[this.at];
    if (character === "\n") this.breakLine();
    else if (character === "\\") this.escape();
    else if (character === "`") this.code();
    else if ("*_~".includes(character)) this.emphasis();
    else if (character === "[") this.open(1);
    else if (character === "!" && this.text[this.at + 1] === "[") this.open(2);
    else if (character === "]") this.close();
    else if (character === "<") this.autolink();
    else if (character === "h") this.address();
    else this.take(matchAt(PLAIN, this.text, this.at)?.[0].length ?? 1);
  }

  // `count` characters of this line as text.
  take(count) {
    this.nodes.push(this.texts(this.at, this.at + count));
    this.at += count;
  }

  // A text node; from and to are places in `this.text`, on the current line or a later one.
  texts(from, to) {
    let line = this.line;
    let begin = this.lineBegin;
    while (from > begin + this.lines[line].text.length) {
      begin += this.lines[line].text.length + 1;
      line += 1;
    }
    const offset = this.lines[line].from - begin;
    return { type: "text", from: from + offset, to: to + offset };
  }

  breakLine() {
    this.nodes.push({ type: "break" });
    this.at += 1;
    this.lineBegin += this.lines[this.line].text.length + 1;
    this.line += 1;
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === "\n") {
      this.at += 1;
      return;
    }
    if (next !== undefined && ESCAPABLE.test(next)) this.at += 1;
    this.take(1);
  }

  code() {
    const marks = runAt(this.text, this.at);
    const begin = this.at + marks;
    const end = closingRun(this.text, begin, marks);
    if (end < 0) {
      this.take(marks);
      return;
    }
    this.nodes.push({ type: "code", children: this.codeTexts(begin, end) });
    this.moveTo(end + marks);
  }

  // Line by line; one space is taken off at both ends where both have one.
  codeTexts(begin, end) {
    const content = this.text.slice(begin, end);
    const padded = content.startsWith(" ") && content.endsWith(" ") && content.trim() !== "";
    const children = [];
    let from = begin + (padded ? 1 : 0);
    const last = end - (padded ? 1 : 0);
    for (const piece of this.text.slice(from, last).split("\n")) {
      children.push(this.texts(from, from + piece.length));
      from += piece.length + 1;
    }
    return children;
  }

  // Go on at `place`, which may be on a later line.
  moveTo(place) {
    this.at = place;
    while (this.at > this.lineBegin + this.lines[this.line].text.length) {
      this.lineBegin += this.lines[this.line].text.length + 1;
      this.line += 1;
    }
  }

  emphasis() {
    const count = runAt(this.text, this.at);
    const before = this.text[this.at - 1];
    const after = this.text[this.at + count];
    const node = this.texts(this.at, this.at + count);
    this.nodes.push({ ...node, type: "run", mark: this.text[this.at], before, after });
    this.at += count;
  }

  open(length) {
    this.brackets.push({ index: this.nodes.length, image: length === 2, active: true });
    this.take(length);
  }

  close() {
    const opener = this.brackets.pop();
    const target = opener?.active ? readTarget(this.text, this.at + 1) : null;
    if (!target) {
      this.take(1);
      return;
    }
    const children = emphasised(this.nodes.splice(opener.index).slice(1));
    this.nodes.push({ type: "link", href: hrefOf(target.address), children });
    if (!opener.image) for (const bracket of this.brackets) bracket.active &&= bracket.image;
    this.moveTo(target.end);
  }

  autolink() {
    const found = matchAt(AUTOLINK, this.text, this.at);
    if (!found) {
      this.take(1);
      return;
    }
    const children = [this.texts(this.at + 1, this.at + found[0].length - 1)];
    this.nodes.push({ type: "link", href: hrefOf(found[1]), children });
    this.at += found[0].length;
  }

  // An address that is just written out; the punctuation behind it is not part of it.
  address() {
    const free = this.at === 0 || !/[\p{L}\p{N}]/u.test(this.text[this.at - 1]);
    const found = free ? matchAt(ADDRESS, this.text, this.at) : null;
    if (!found || this.brackets.some((bracket) => bracket.active && !bracket.image)) {
      this.take(1);
      return;
    }
    const address = withoutPunctuation(found[0]);
    const children = [this.texts(this.at, this.at + address.length)];
    this.nodes.push({ type: "link", href: hrefOf(address), children });
    this.at += address.length;
  }
}

// Texts that follow one another without a gap become one.
function merged(nodes) {
  const kept = [];
  for (const node of nodes) {
    const last = kept.at(-1);
    if (node.type === "text" && last?.type === "text" && last.to === node.from) last.to = node.to;
    else kept.push(node.children ? { ...node, children: merged(node.children) } : node);
  }
  return kept;
}

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

// Where a run of exactly `count` backticks begins, -1 where there is none.
function closingRun(text, from, count) {
  let at = text.indexOf("`", from);
  while (at >= 0) {
    const length = runAt(text, at);
    if (length === count) return at;
    at = text.indexOf("`", at + length);
  }
  return -1;
}

function withoutPunctuation(address) {
  let end = address.length;
  while (end > 0 && (".,;:!?'*_~".includes(address[end - 1]) || closesNothing(address, end))) end -= 1;
  return address.slice(0, end);
}

// Whether the last of the first `end` characters is a parenthesis that was opened before them.
function closesNothing(address, end) {
  if (address[end - 1] !== ")") return false;
  const kept = address.slice(0, end);
  return kept.split(")").length > kept.split("(").length;
}
