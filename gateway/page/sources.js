// Who a token came from: its name for people, and its place in the palette.
// The palette's places differ in colour and in how they underline: colour is never alone.

export const TARGET = "target";

const KNOWN = new Map([
  [TARGET, { label: "Model", place: 0 }],
  ["ngram", { label: "N-grams", place: 1 }],
  ["ngram-store", { label: "N-gram store", place: 2 }],
  ["eagle3", { label: "EAGLE-3", place: 3 }],
  ["eagle", { label: "EAGLE", place: 4 }],
  ["mtp", { label: "MTP", place: 5 }],
  ["medusa", { label: "Medusa", place: 6 }],
  ["draft-model", { label: "Draft model", place: 7 }],
  ["self-speculative", { label: "Own layers", place: 8 }],
  ["prediction", { label: "Prediction", place: 9 }],
]);
const FIRST_FREE_PLACE = 10;
const FREE_PLACES = 3;

// A source that is not known here still gets a place, always the same one.
export function describeSource(source) {
  return KNOWN.get(source) ?? { label: source, place: FIRST_FREE_PLACE + sum(source) % FREE_PLACES };
}

export function placeClass(source) {
  return `place-${describeSource(source).place}`;
}

// The target first, then as in the palette.
export function inOrder(sources) {
  const place = (source) => describeSource(source).place;
  return [...sources].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

// The drafters that a name such as `ngram+eagle3` joins, as people read them.
export function describeDrafter(name) {
  return name.split("+").map((each) => describeSource(each).label).join(" + ");
}

function sum(text) {
  return [...text].reduce((total, character) => total + character.codePointAt(0), 0);
}
