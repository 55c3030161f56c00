// What an answer says of itself in a line, and two answers of each other.

import { figuresOf, speedUp } from "./figures.js";
import { count, milliseconds, percent, ratio, times } from "./format.js";
import { firstDifference, hasEnded } from "./run.js";

const STATES = {
  waiting: "Waiting for the gateway",
  reading: "Reading the conversation",
  streaming: "",
  completed: "",
  lost: "The connection is lost. This will be asked again with the same seed.",
  length: "Ended at the most tokens.",
  cancelled: "Stopped.",
  interrupted: "Interrupted. Ask again for the whole answer.",
};

export function stateOf(run) {
  if (run.status === "failed") return run.error?.message ?? "The gateway failed on this.";
  return STATES[run.status];
}

// { name, value, help } of what is known of a run; `plain` is the one that it is compared with.
export function summaryOf(run, plain, status) {
  const figures = figuresOf(run);
  if (figures.tokens === 0) return [];
  const parts = [{ name: "", value: count(figures.tokens, "token"), help: "in the answer" }];
  if (figures.tpot !== null) {
    parts.push({ name: "", value: `${milliseconds(figures.tpot)}/token`, help: "after the first token" });
  }
  if (figures.verified > 0) {
    parts.push(
      { name: "tau", value: ratio(figures.tau), help: "tokens per round, 1 is plain decoding" },
      { name: "alpha", value: ratio(figures.alpha), help: "share of drafted tokens that were accepted" },
    );
  }
  const speed = run.plain || figures.verified === 0 ? null : speedUp(run, plain, status);
  if (speed !== null) {
    const about = speed.known === "estimated" ? "≈ " : "";
    parts.push({ name: "speed", value: about + times(speed.ratio), help: `against plain decoding, ${speed.known}` });
  }
  if (run.timings?.lossless === false) {
    parts.push({ name: "", value: "lossy", help: `the rule ${run.timings.rule} changes what the model says` });
  }
  parts.push({ name: "seed", value: String(run.seed), help: "with the same question and parameters the same answer" });
  return parts;
}

// The four meters of a run: { name, value, help }.
export function metersOf(run, plain, status) {
  const figures = run ? figuresOf(run) : {};
  const speed = run && !run.plain ? speedUp(run, plain, status) : null;
  return [
    { name: "tau", value: ratio(figures.tau), help: "tokens per round" },
    { name: "alpha", value: percent(figures.alpha), help: "of drafts accepted" },
    { name: "TPOT", value: milliseconds(figures.tpot), help: "per token" },
    { name: "speed-up", value: times(speed?.ratio), help: speedHelp(speed) },
  ];
}

function speedHelp(speed) {
  if (speed === null) return "against plain decoding";
  const how = { measured: "measured beside it", estimated: "estimated from run costs" };
  return how[speed.known];
}

// What a comparison has shown: { same, text }, or null while it is not over.
export function verdictOf(message) {
  const [run, plain] = message.runs;
  if (!plain || !hasEnded(run) || !hasEnded(plain)) return null;
  if (!run.timings || !plain.timings || run.status === "cancelled" || plain.status === "cancelled") {
    return { same: null, text: "Not compared: one of the answers did not come to its end." };
  }
  const part = firstDifference(run.text, plain.text);
  const said = part < 0
    ? `Identical text, ${count(figuresOf(run).tokens, "token")}.`
    : `The texts part at character ${part + 1}. ${reasonOf(run.timings)}`;
  return { same: part < 0, text: `${said} ${paceOf(run, plain, message.compare)}`.trim() };
}

function paceOf(run, plain, compare) {
  const [fast, slow] = [figuresOf(run).tpot, figuresOf(plain).tpot];
  if (!fast || !slow) return "";
  const beside = `${milliseconds(fast)} against ${milliseconds(slow)} per token`;
  return `Speculation was ${times(slow / fast)} as fast: ${beside}, asked ${compare}.`;
}

function reasonOf({ lossless, exact, rule }) {
  if (!lossless) return `The rule ${rule} is lossy.`;
  if (rule === "classic") return "The rule classic promises the same distribution, not the same text.";
  if (!exact) return "Trees, or kernels that are not exact here, may turn a near tie.";
  return "They should not: the rule coupled promises the same text.";
}
