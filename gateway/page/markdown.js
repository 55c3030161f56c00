// Markdown as elements, with every token of an answer in an element of its own.
//
// While an answer streams only what changed is made anew: what stands before it keeps its
// elements, and with them a reader's selection.

import { parseMarkdown } from "./blocks.js";
import { copyButton } from "./clipboard.js";
import { el } from "./dom.js";
import { placeClass, TARGET } from "./sources.js";

const PAGE_HEADINGS = 3;

export class MarkdownView {
  constructor() {
    this.node = el("div", { class: "markdown" });
    this.keys = [];
  }

  // Show `source`, whose tokens `trace` knows (null: nobody does).
  update(source, trace = null) {
    const painter = new Painter(source, trace);
    const blocks = stepwise(parseMarkdown(source));
    const keys = blocks.map((block) => keyOf(block, source, trace));
    let same = 0;
    while (same < keys.length && keys[same] === this.keys[same]) same += 1;
    while (this.node.childNodes.length > same) this.node.lastChild.remove();
    this.node.append(...blocks.slice(same).map((block) => painter.block(block)));
    this.keys = keys;
  }
}

// Headings below those of the page, none of which is more than one step below the one before.
function stepwise(blocks) {
  let before = PAGE_HEADINGS;
  for (const block of blocks) {
    if (block.type !== "heading") continue;
    block.shown = Math.min(6, block.level + PAGE_HEADINGS, before + 1);
    before = block.shown;
  }
  return blocks;
}

// Two blocks of the same key look the same.
function keyOf(block, source, trace) {
  const known = trace ? Math.min(trace.end, block.to) : -1;
  return `${block.type} ${block.from} ${known} ${source.slice(block.from, block.to)}`;
}

class Painter {
  constructor(source, trace) {
    this.source = source;
    this.trace = trace;
  }

  block(block) {
    return this[block.type](block);
  }

  blocks(blocks) {
    return blocks.map((block) => this.block(block));
  }

  paragraph({ children }) {
    return el("p", {}, this.inlines(children));
  }

  heading({ level, shown = 6, children }) {
    return el(`h${shown}`, { class: `level-${level}` }, this.inlines(children));
  }

  rule() {
    return el("hr");
  }

  quote({ children }) {
    return el("blockquote", {}, this.blocks(children));
  }

  code({ language, lines }) {
    const label = language || "text";
    const code = el("code", {}, this.lines(lines));
    const copy = copyButton(() => code.textContent, "Copy code");
    const head = el("div", { class: "code-head" }, el("span", {}, label), copy);
    const attributes = { tabindex: "0", role: "group", "aria-label": `Code, ${label}` };
    return el("div", { class: "code" }, head, el("pre", attributes, code));
  }

  list({ ordered, start, loose, items }) {
    const attributes = { class: loose ? "loose" : "tight", start: start === 1 ? null : start };
    return el(ordered ? "ol" : "ul", attributes, items.map((item) => this.item(item, loose)));
  }

  item({ done, children }, loose) {
    const made = children.map((child) => (
      !loose && child.type === "paragraph" ? this.inlines(child.children) : this.block(child)
    ));
    if (done === null) return el("li", {}, made.flat());
    const box = el("input", {
      type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "to do",
    });
    return el("li", { class: "task" }, box, made.flat());
  }

  table({ aligns, head, rows }) {
    const cell = (name, children, index) => (
      el(name, { class: aligns[index] ? `align-${aligns[index]}` : null }, this.inlines(children))
    );
    const heads = head.map((children, index) => {
      const made = cell("th", children, index);
      made.setAttribute("scope", "col");
      return made;
    });
    const body = rows.map((row) => (
      el("tr", {}, row.map((children, index) => cell("td", children, index)))
    ));
    const table = el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body));
    return el("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" }, table);
  }

  inlines(nodes) {
    return nodes.flatMap((node) => this.inline(node));
  }

  inline(node) {
    if (node.type === "text") return this.text(node.from, node.to);
    if (node.type === "break") return [el("br")];
    if (node.type === "code") return [el("code", {}, this.spaced(node.children))];
    if (node.type === "link") return [this.link(node)];
    return [el(node.type, {}, this.inlines(node.children))];
  }

  link({ href, children }) {
    if (href === null) return el("span", {}, this.inlines(children));
    const attributes = { href, target: "_blank", rel: "noopener noreferrer" };
    return el("a", attributes, this.inlines(children));
  }

  // Code that goes over several lines reads as if it were on one.
  spaced(texts) {
    return texts.flatMap(({ from, to }, index) => [...(index > 0 ? [" "] : []), ...this.text(from, to)]);
  }

  lines(lines) {
    return lines.flatMap(({ from, text }) => [...this.text(from, from + text.length), "\n"]);
  }

  // From `from` to `to` of the source, token by token.
  text(from, to) {
    if (this.trace === null) return from < to ? [this.source.slice(from, to)] : [];
    const made = [];
    let at = from;
    while (at < to) {
      const token = this.trace.at(at);
      const end = token < 0 ? to : Math.min(to, this.trace.ends[token]);
      const text = this.source.slice(at, end);
      made.push(token < 0 ? text : this.token(token, text));
      at = end;
    }
    return made;
  }

  token(index, text) {
    const source = this.trace.sources[index];
    const place = source === TARGET ? "" : ` drafted ${placeClass(source)}`;
    return el("span", { class: `token${place}`, "data-token": index }, text);
  }
}
