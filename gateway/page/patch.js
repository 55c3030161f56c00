// Elements as plain objects, and changing those of the document into them: only what differs is made.

import { el } from "./dom.js";

// An element to be. `children` are more of them, and texts.
export function node(name, attributes = {}, children = []) {
  return { name, attributes, children: children.map((child) => (typeof child === "string" ? text(child) : child)) };
}

// Elements to be that were painted before: the same ones are not compared again.
export class Painted {
  constructor() {
    this.before = new Map();
    this.now = new Map();
  }

  // What `paint` paints, from last time where `key` was painted then.
  get(key, paint) {
    const found = this.before.get(key) ?? paint();
    this.now.set(key, found);
    return found;
  }

  // What was not asked for since the last time is forgotten.
  turn() {
    this.before = this.now;
    this.now = new Map();
  }
}

// An element that `make` makes, once: nobody changes it from here.
export function made(make) {
  return { name: null, make };
}

// The last children of `parent` are `before`; make them `after`.
export function patch(parent, before, after) {
  const shared = Math.min(before.length, after.length);
  for (let at = 0; at < after.length; at += 1) {
    if (before[at] !== after[at]) after[at] = unshown(after[at]);
  }
  for (let at = 0; at < shared; at += 1) {
    if (before[at] !== after[at]) change(before[at], after[at]);
  }
  for (const gone of before.slice(shared)) gone.shown.remove();
  parent.append(...after.slice(shared).map(create));
}

// What is shown in another place already is painted once more.
function unshown(wanted) {
  if (!wanted.shown) return wanted;
  const { shown, ...copy } = wanted;
  return { ...copy, ...(copy.children && { children: copy.children.map(unshown) }) };
}

function text(content) {
  return { name: "#text", content };
}

function create(wanted) {
  if (wanted.name === "#text") wanted.shown = document.createTextNode(wanted.content);
  else if (wanted.name === null) wanted.shown = wanted.make();
  else {
    wanted.children = wanted.children.map(unshown);
    wanted.shown = el(wanted.name, wanted.attributes, ...wanted.children.map(create));
  }
  return wanted.shown;
}

function change(before, after) {
  if (!isAlike(before, after)) {
    before.shown.replaceWith(create(after));
    return;
  }
  after.shown = before.shown;
  if (after.name === "#text") {
    if (before.content !== after.content) after.shown.data = after.content;
  } else if (after.name !== null) {
    patch(after.shown, before.children, after.children);
  }
}

function isAlike(before, after) {
  return before.name === after.name && sameAttributes(before.attributes ?? {}, after.attributes ?? {});
}

function sameAttributes(one, other) {
  const names = Object.keys(one);
  if (names.length !== Object.keys(other).length) return false;
  return names.every((name) => one[name] === other[name]);
}
