// Where markdown's links lead, and which of them may be followed.

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const LONGEST = 2000;
const DEEPEST = 32;
const SPACE = /[ \n]*/y;
const TITLE = /(?:"[^"]{0,500}"|'[^']{0,500}')[ \n]*/y;

// What stands behind a link's text at `at`: "(address)" or "(address "title")". Null for neither.
export function readTarget(text, at) {
  if (text[at] !== "(") return null;
  const begin = matchEnd(SPACE, text, at + 1);
  const address = text[begin] === "<" ? bracketed(text, begin) : balanced(text, begin);
  if (!address) return null;
  const behind = matchEnd(SPACE, text, address.end);
  const end = behind > address.end ? matchEnd(TITLE, text, behind) : behind;
  return text[end] === ")" ? { address: address.text, end: end + 1 } : null;
}

// The address, where it is a whole one that a click may open; otherwise null.
export function hrefOf(address) {
  try {
    const url = new URL(address);
    return SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function bracketed(text, begin) {
  const end = text.indexOf(">", begin);
  if (end < 0 || end - begin > LONGEST) return null;
  const inner = text.slice(begin + 1, end);
  return inner.includes("\n") ? null : { text: inner, end: end + 1 };
}

function balanced(text, begin) {
  let depth = 0;
  let end = begin;
  while (end < text.length && end - begin <= LONGEST && !/\s/.test(text[end])) {
    if (text[end] === "(") depth += 1;
    if (depth > DEEPEST) return null;
    if (text[end] === ")" && depth === 0) break;
    if (text[end] === ")") depth -= 1;
    end += 1;
  }
  return end > begin && depth === 0 ? { text: text.slice(begin, end), end } : null;
}

function matchEnd(pattern, text, at) {
  pattern.lastIndex = at;
  return at + (pattern.exec(text)?.[0].length ?? 0);
}
