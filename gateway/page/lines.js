// Lines of a source: { from, text }, where `from` is the place in the source where `text` begins.
// Inside quotes and lists lines lose their marks: then `from` moves on.

const TAB = 4;

// Those behind the place `begin`, where a line begins.
export function splitLines(source, begin = 0) {
  let from = begin;
  return source.slice(begin).split("\n").map((whole) => {
    const line = { from, text: whole.endsWith("\r") ? whole.slice(0, -1) : whole };
    from += whole.length + 1;
    return line;
  });
}

export function isBlank(line) {
  return line.text.trim() === "";
}

export function endOf(line) {
  return line.from + line.text.length;
}

export function drop(line, count) {
  return { from: line.from + count, text: line.text.slice(count) };
}

// Columns of the white space that it begins with; a tab goes on to the next multiple of four.
export function indentOf(line) {
  return columns(line.text, line.text.length - line.text.trimStart().length);
}

// Without the white space of at most so many columns.
export function unindent(line, most) {
  let count = 0;
  while (count < line.text.length && " \t".includes(line.text[count])) {
    if (columns(line.text, count + 1) > most) break;
    count += 1;
  }
  return drop(line, count);
}

export function trimmedStart(line) {
  return drop(line, line.text.length - line.text.trimStart().length);
}

export function trimmed(line) {
  const { from, text } = trimmedStart(line);
  return { from, text: text.trimEnd() };
}

export function columns(text, count) {
  let reached = 0;
  for (let at = 0; at < count; at += 1) {
    reached = text[at] === "\t" ? reached + TAB - (reached % TAB) : reached + 1;
  }
  return reached;
}
