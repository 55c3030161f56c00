// Markdown as elements, with every token of an answer in an element of its own.
//
// While an answer streams only what changed is made anew: what stands before it keeps its
// elements, and with them a reader's selection. What cannot change any more is not looked at again.

import { copyButton } from "./clipboard.js";
import { el } from "./dom.js";
import { GrowingMarkdown } from "./growing.js";
import { made, node, Painted, patch } from "./patch.js";
import { placeClass, TARGET } from "./sources.js";

export class MarkdownView {
  constructor() {
    this.node = el("div", { class: "markdown" });
    this.growing = new GrowingMarkdown();
    this.painted = [];
    this.trace = null;
    this.#forget();
  }

  // Show `source`, whose tokens `trace` knows (null: nobody does).
  update(source, trace = null) {
    // Another trace is another answer: its tokens may have other sources.
    if (trace !== this.trace || !source.startsWith(this.source)) this.#forget();
    this.trace = trace;
    this.source = source;
    const { settled, blocks } = this.growing.read(source);
    const painter = new Painter(source, trace, this.parts);
    const after = blocks.map((block) => painter.block(block));
    this.parts.turn();
    patch(this.node, this.painted.slice(settled), after);
    this.painted.splice(settled, this.painted.length, ...after);
  }

  #forget() {
    this.growing.forget();
    this.parts = new Painted();
    this.source = "";
  }
}

class Painter {
  // `parts` has what was painted of lines, items and rows that are whole.
  constructor(source, trace, parts) {
    this.source = source;
    this.trace = trace;
    this.parts = parts;
  }

  // What `paint` paints of a part of the source, which is painted once if all of it is known.
  part(kind, from, to, paint) {
    const whole = to < this.source.length && (this.trace === null || this.trace.end >= to);
    return whole ? this.parts.get(`${kind} ${from} ${to}`, paint) : paint();
  }

  block(block) {
    return this[block.type](block);
  }

  blocks(blocks) {
    return blocks.map((block) => this.block(block));
  }

  paragraph({ children }) {
    return node("p", {}, this.inlines(children));
  }

  heading({ level, shown = 6, children }) {
    return node(`h${shown}`, { class: `level-${level}` }, this.inlines(children));
  }

  rule() {
    return node("hr");
  }

  quote({ children }) {
    return node("blockquote", {}, this.blocks(children));
  }

  code({ language, lines }) {
    const label = language || "text";
    const code = node("code", {}, lines.map((line) => this.line(line)));
    const copy = made(() => {
      const button = copyButton(() => button.closest(".code").querySelector("code").textContent, "Copy code");
      return button;
    });
    const head = node("div", { class: "code-head" }, [node("span", {}, [label]), copy]);
    const attributes = { tabindex: "0", role: "group", "aria-label": `Code, ${label}` };
    return node("div", { class: "code" }, [head, node("pre", attributes, [code])]);
  }

  list({ ordered, start, loose, items }) {
    const attributes = { class: loose ? "loose" : "tight", start: start === 1 ? null : start };
    const shown = items.map((item) => (
      this.part(`item ${loose}`, item.from, item.to, () => this.item(item, loose))
    ));
    return node(ordered ? "ol" : "ul", attributes, shown);
  }

  item({ done, children }, loose) {
    const shown = children.map((child) => (
      !loose && child.type === "paragraph" ? this.inlines(child.children) : this.block(child)
    ));
    if (done === null) return node("li", {}, shown.flat());
    const box = node("input", {
      type: "checkbox", disabled: true, checked: done, "aria-label": done ? "done" : "to do",
    });
    return node("li", { class: "task" }, [box, ...shown.flat()]);
  }

  table({ aligns, head, rows }) {
    const cell = (name, children, index, more = {}) => {
      const attributes = { class: aligns[index] ? `align-${aligns[index]}` : null, ...more };
      return node(name, attributes, this.inlines(children));
    };
    const heads = head.map((children, index) => cell("th", children, index, { scope: "col" }));
    const body = rows.map(({ from, to, cells }) => this.part("row", from, to, () => (
      node("tr", {}, cells.map((children, index) => cell("td", children, index)))
    )));
    const parts = [node("thead", {}, [node("tr", {}, heads)]), node("tbody", {}, body)];
    const attributes = { class: "table", tabindex: "0", role: "group", "aria-label": "Table" };
    return node("div", attributes, [node("table", {}, parts)]);
  }

  inlines(nodes) {
    return nodes.flatMap((part) => this.inline(part));
  }

  inline(part) {
    if (part.type === "text") return this.text(part.from, part.to);
    if (part.type === "break") return [node("br")];
    if (part.type === "code") return [node("code", {}, this.spaced(part.children))];
    if (part.type === "link") return [this.link(part)];
    return [node(part.type, {}, this.inlines(part.children))];
  }

  link({ href, children }) {
    if (href === null) return node("span", {}, this.inlines(children));
    const attributes = { href, target: "_blank", rel: "noopener noreferrer" };
    return node("a", attributes, this.inlines(children));
  }

  // Code that goes over several lines reads as if it were on one.
  spaced(texts) {
    return texts.flatMap(({ from, to }, index) => [...(index > 0 ? [" "] : []), ...this.text(from, to)]);
  }

  // A line of code is a block: a browser need not lay out those before it again.
  line({ from, text }) {
    const to = from + text.length;
    return this.part("line", from, to, () => (
      node("span", { class: "code-line" }, [...this.text(from, to), "\n"])
    ));
  }

  // From `from` to `to` of the source, token by token.
  text(from, to) {
    if (this.trace === null) return from < to ? [this.source.slice(from, to)] : [];
    const pieces = [];
    let at = from;
    while (at < to) {
      const token = this.trace.at(at);
      const end = token < 0 ? to : Math.min(to, this.trace.ends[token]);
      const text = this.source.slice(at, end);
      pieces.push(token < 0 ? text : this.token(token, text));
      at = end;
    }
    return pieces;
  }

  token(index, text) {
    const source = this.trace.sources[index];
    const place = source === TARGET ? "" : ` drafted ${placeClass(source)}`;
    return node("span", { class: `token${place}`, "data-token": index }, [text]);
  }
}
