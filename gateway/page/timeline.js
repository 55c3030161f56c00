// The rounds of an answer as a picture: above what each drafted and what of it was accepted,
// below how long it took.

import { el, svg } from "./dom.js";
import { columns, liveFigures } from "./figures.js";
import { count, milliseconds, ratio } from "./format.js";
import { inOrder, placeClass } from "./sources.js";

export const MOST_COLUMNS = 96;
const FEWEST_COLUMNS = 24;
const PITCH = 4;
const BAR = 3;
const TOKENS_HEIGHT = 56;
const GAP = 6;
const TIME_HEIGHT = 26;

// While an answer `grows` its latest rounds are drawn: as much work behind 2000 rounds as behind 100.
export function timeline(trace, grows = false) {
  const made = columns(trace, MOST_COLUMNS, grows);
  const width = Math.max(FEWEST_COLUMNS, made.length) * PITCH;
  const height = TOKENS_HEIGHT + GAP + TIME_HEIGHT;
  const scale = {
    token: TOKENS_HEIGHT / Math.max(4, ...made.map((column) => column.verified + 1)),
    ms: TIME_HEIGHT / Math.max(1, ...made.map((column) => column.draftMs + column.verifyMs)),
  };
  return svg(
    "svg",
    {
      class: "timeline",
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": describe(trace, grows),
    },
    svg("path", { class: "axis", d: `M0 ${TOKENS_HEIGHT}.5H${width}M0 ${height - 0.5}H${width}` }),
    made.map((column, index) => columnOf(column, index * PITCH, scale, height)),
  );
}

// The same as a table, for who does not see the picture and who wants the numbers.
export function roundsTable(trace) {
  const heads = ["Round", "At", "Drafted", "Accepted", "Draft time", "Target time"];
  const rows = trace.steps.map((step) => [
    step.round,
    milliseconds(step.ms),
    step.verified,
    step.accepted,
    milliseconds(step.draft_ms),
    milliseconds(step.verify_ms),
  ]);
  return el(
    "table",
    { class: "rounds-table" },
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, String(cell)))))),
  );
}

export function describe(trace, grows = false) {
  const { rounds, tau, verified, accepted } = liveFigures(trace);
  if (rounds === 0) return "No rounds yet";
  const shown = grows && rounds > MOST_COLUMNS ? `; the last ${MOST_COLUMNS} rounds are shown` : "";
  return `${count(rounds, "round")}, ${ratio(tau)} tokens per round, ` +
    `${accepted} of ${verified} drafted tokens accepted${shown}`;
}

function columnOf(column, x, scale, height) {
  const boxes = [];
  let top = TOKENS_HEIGHT;
  const stack = (name, tokens) => {
    top -= tokens * scale.token;
    boxes.push(box(name, x, top, tokens * scale.token));
  };
  stack("bar-target", 1);
  for (const source of inOrder(column.accepted.keys())) {
    stack(`bar-drafted ${placeClass(source)}`, column.accepted.get(source));
  }
  const accepted = [...column.accepted.values()].reduce((sum, each) => sum + each, 0);
  if (column.verified > accepted) stack("bar-rejected", column.verified - accepted);
  const verify = column.verifyMs * scale.ms;
  const draft = column.draftMs * scale.ms;
  boxes.push(box("bar-verify", x, height - verify, verify));
  if (draft > 0) boxes.push(box("bar-draft", x, height - verify - draft, draft));
  return svg("g", { class: "round" }, svg("title", {}, titleOf(column)), boxes);
}

function box(name, x, y, height) {
  return svg("rect", {
    class: name, x, y: y.toFixed(2), width: BAR, height: Math.max(0, height).toFixed(2),
  });
}

function titleOf(column) {
  const one = column.first === column.last;
  const rounds = one ? `Round ${column.first}` : `Rounds ${column.first} to ${column.last}, on average`;
  const show = (value) => (one ? String(value) : value.toFixed(1));
  return `${rounds}: ${show(column.verified)} drafted, ${show(column.acceptedTokens)} accepted; ` +
    `target ${milliseconds(column.verifyMs)}, drafts ${milliseconds(column.draftMs)}`;
}
