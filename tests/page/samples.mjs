// Events, traces and runs for tests, as the gateway sends them.

import { hear, newRun } from "../../gateway/page/run.js";
import { Trace } from "../../gateway/page/trace.js";

// A delta's `speculation`: `tokens` are [text, source, round, ms].
export function speculation(tokens, rounds = []) {
  return {
    texts: tokens.map(([text]) => text),
    sources: tokens.map(([, source]) => source),
    token_rounds: tokens.map(([, , round]) => round),
    token_ms: tokens.map(([, , , ms]) => ms),
    rounds,
  };
}

export function step(round, verified, accepted, ms = 100 * round) {
  return { round, ms, draft_ms: 1, verify_ms: 9, verified, accepted };
}

// "one two three four", of which an n-gram draft gave two tokens in the first round.
export function sampleTrace() {
  const trace = new Trace();
  trace.add(speculation([["one", "target", 0, 50]]), [{ logprob: -0.5 }]);
  const drafted = [[" two", "ngram", 1, 100], [" three", "ngram", 1, 100], [" four", "target", 1, 100]];
  trace.add(speculation(drafted, [step(1, 3, 2)]), [{ logprob: 0 }, { logprob: -1 }, { logprob: -2 }]);
  return trace;
}

export function timings(changed = {}) {
  return {
    draft_n: 3, draft_n_accepted: 2, rounds: 1, tau: 3, alpha: 0.6667, ttft_ms: 50, tpot_ms: 5,
    drafter: "ngram", policy: "cost", rule: "coupled", lossless: true, exact: true, ...changed,
  };
}

// A run that ended, with `text`.
export function endedRun(text, { plain = false, ...changed } = {}) {
  const run = newRun({ seed: 7, plain });
  run.trace = sampleTrace();
  run.text = text;
  const usage = { input_tokens: 20, output_tokens: 4 };
  hear(run, { type: "response.completed", response: { status: "completed", timings: timings(changed), usage } });
  return run;
}

export const STATUS = {
  run_ms: { 2: 10, 8: 14 },
  costs: { factor: 2, per_past: 0.01, per_work: 0.001, overhead_ms: 0.5 },
};
