// Emphasis by CommonMark's rules: runs of * and _ (and of two ~) that open and close each other.

// More runs than that are no emphasis that anybody would read: they are text.
const MOST_RUNS = 400;

// The length of the run of one character that begins at `at`.
export function runAt(text, at) {
  let end = at + 1;
  while (text[end] === text[at]) end += 1;
  return end - at;
}

// `nodes` with their runs turned into `strong`, `em` and `del`, or back into text.
export function emphasised(nodes) {
  const runs = nodes.filter((node) => node.type === "run");
  if (runs.length === 0 || runs.length > MOST_RUNS) return nodes.map(asText);
  for (const run of runs) flank(run);
  const made = [...nodes];
  let at = 0;
  while (at < made.length) {
    const opener = made[at].type === "run" && made[at].closes ? openerOf(made, at) : -1;
    at = opener < 0 ? at + 1 : join(made, opener, at);
  }
  return made.map(asText);
}

// Put what is between the runs at `opener` and `closer` under one node; where to go on.
function join(nodes, opener, closer) {
  const [first, last] = [nodes[opener], nodes[closer]];
  const width = lengthOf(first) >= 2 && lengthOf(last) >= 2 ? 2 : 1;
  const type = first.mark === "~" ? "del" : width === 2 ? "strong" : "em";
  const children = nodes.slice(opener + 1, closer).map(asText);
  const left = { ...first, to: first.to - width };
  const right = { ...last, from: last.from + width };
  const kept = [
    ...(lengthOf(left) > 0 ? [left] : []),
    { type, children },
    ...(lengthOf(right) > 0 ? [right] : []),
  ];
  nodes.splice(opener, closer - opener + 1, ...kept);
  // The closer may close more, the node behind it comes next.
  return opener + kept.length - (lengthOf(right) > 0 ? 1 : 0);
}

function openerOf(nodes, at) {
  const closer = nodes[at];
  for (let index = at - 1; index >= 0; index -= 1) {
    const opener = nodes[index];
    if (opener.type === "run" && opener.opens && fit(opener, closer)) return index;
  }
  return -1;
}

function fit(opener, closer) {
  if (opener.mark !== closer.mark) return false;
  if (opener.mark === "~") return lengthOf(opener) === 2 && lengthOf(closer) === 2;
  // "The rule of 3": a run that can do both must not be matched across its multiples.
  const both = opener.closes || closer.opens;
  const sum = opener.whole + closer.whole;
  return !(both && sum % 3 === 0 && (opener.whole % 3 !== 0 || closer.whole % 3 !== 0));
}

function flank(run) {
  const left = !isSpace(run.after) && (!isMark(run.after) || isSpace(run.before) || isMark(run.before));
  const right = !isSpace(run.before) && (!isMark(run.before) || isSpace(run.after) || isMark(run.after));
  const inWord = run.mark === "_";
  run.opens = left && (!inWord || !right || isMark(run.before));
  run.closes = right && (!inWord || !left || isMark(run.after));
  run.whole = lengthOf(run);
}

function lengthOf(run) {
  return run.to - run.from;
}

function asText(node) {
  return node.type === "run" ? { type: "text", from: node.from, to: node.to } : node;
}

function isSpace(character) {
  return character === undefined || /\s/.test(character);
}

function isMark(character) {
  return character !== undefined && /[\p{P}\p{S}]/u.test(character);
}
