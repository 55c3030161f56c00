// Elements, made without markup in strings: text never becomes anything but text.

const SVG = "http://www.w3.org/2000/svg";

// `attributes` whose names begin with "on" are listeners; null, undefined and false are left out.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

// Set the text only where it is another: who has selected it keeps the selection.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, shown) {
  node.hidden = !shown;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
