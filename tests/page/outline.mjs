// What markdown was parsed to, in a line of text.

export function outline(source, blocks) {
  return blocks.map((block) => KINDS[block.type](source, block)).join(" ");
}

// The texts of all nodes, in order.
export function textOf(source, nodes) {
  return nodes.map((node) => textOfNode(source, node)).join("");
}

export function inlineOutline(source, nodes) {
  return nodes.map((node) => {
    if (node.type === "text") return source.slice(node.from, node.to);
    if (node.type === "break") return "/";
    const inner = inlineOutline(source, node.children);
    if (node.type === "code") return `\`${node.children.map((each) => source.slice(each.from, each.to)).join("·")}\``;
    if (node.type === "link") return `[${inner}](${node.href})`;
    return `<${node.type}>${inner}</${node.type}>`;
  }).join("");
}

const KINDS = {
  paragraph: (source, { children }) => `p(${inlineOutline(source, children)})`,
  heading: (source, { level, children }) => `h${level}(${inlineOutline(source, children)})`,
  rule: () => "hr",
  quote: (source, { children }) => `quote(${outline(source, children)})`,
  code: (source, { language, lines }) => `code:${language}(${lines.map(({ text }) => text).join("|")})`,
  list: (source, { ordered, start, items }) => {
    const inner = items.map(({ done, children }) => {
      const name = done === null ? "li" : done ? "done" : "todo";
      return `${name}(${outline(source, children)})`;
    });
    return `${ordered ? `ol${start}` : "ul"}(${inner.join(" ")})`;
  },
  table: (source, { aligns, head, rows }) => {
    const row = (cells) => cells.map((cell) => inlineOutline(source, cell)).join(",");
    return `table[${aligns.map((align) => align ?? "-")}](${[head, ...rows.map(({ cells }) => cells)].map(row).join("|")})`;
  },
};

function textOfNode(source, node) {
  if (node.type === "text") return source.slice(node.from, node.to);
  if (node.type === "table") return [node.head, ...node.rows.map(({ cells }) => cells)].flat().map((cell) => textOf(source, cell)).join("");
  if (node.type === "list") return node.items.map((item) => textOf(source, item.children)).join("");
  if (node.lines) return node.lines.map(({ from, text }) => source.slice(from, from + text.length)).join("\n");
  return node.children ? textOf(source, node.children) : "";
}
