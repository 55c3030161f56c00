// What an answer's rounds add up to, while it runs and when it is done.

// From the trace alone: what is known while the answer streams. Null is "not known yet".
export function liveFigures(trace) {
  const tokens = trace.length;
  const rounds = trace.steps.length;
  const { verified, accepted } = trace;
  const behind = tokens - prompted(trace);
  return {
    tokens,
    rounds,
    verified,
    accepted,
    tau: rounds > 0 ? behind / rounds : null,
    alpha: verified > 0 ? accepted / verified : null,
    tpot: tokens > 1 ? (trace.ms.at(-1) - trace.ms[0]) / (tokens - 1) : null,
    ttft: tokens > 0 ? trace.ms[0] : null,
  };
}

// Of a run: the gateway's own figures as soon as it has said them.
export function figuresOf(run) {
  const live = liveFigures(run.trace);
  const { timings, usage } = run;
  if (!timings) return live;
  return {
    tokens: usage?.output_tokens ?? live.tokens,
    rounds: timings.rounds,
    verified: timings.draft_n,
    accepted: timings.draft_n_accepted,
    tau: timings.tau,
    alpha: timings.alpha,
    tpot: timings.tpot_ms,
    ttft: timings.ttft_ms,
  };
}

// Milliseconds that a token takes without speculation behind `cached` tokens, for a stream that
// is alone: what `/v1/status` says that a round of the narrowest run costs. Null where it cannot.
export function plainTokenMs(status, cached) {
  const widths = Object.keys(status?.run_ms ?? {}).map(Number).filter((width) => width > 0);
  if (widths.length === 0 || !status.costs) return null;
  const narrowest = Math.min(...widths);
  const { factor, per_past, per_work, overhead_ms } = status.costs;
  const past = factor * (per_past * cached + per_work * cached * narrowest);
  return status.run_ms[String(narrowest)] + past + overhead_ms;
}

// How many times as fast as plain decoding, and how that is known:
// "measured" beside a plain run of the same answer, "estimated" from what runs cost, or null.
export function speedUp(run, plain, status) {
  const { tpot, tokens } = figuresOf(run);
  if (!tpot) return null;
  const beside = plain && plain.status !== "failed" ? figuresOf(plain).tpot : null;
  if (beside && plain.timings) return { ratio: beside / tpot, known: "measured" };
  const expected = plainTokenMs(status, (run.usage?.input_tokens ?? 0) + tokens / 2);
  return expected ? { ratio: expected / tpot, known: "estimated" } : null;
}

// At most `most` columns: of the `latest` rounds, or of all of them, where each column has the means
// of consecutive rounds.
export function columns(trace, most, latest = false) {
  const steps = latest ? trace.steps.slice(-most) : trace.steps;
  const size = Math.max(1, Math.ceil(steps.length / most));
  const made = [];
  for (let from = 0; from < steps.length; from += size) {
    made.push(column(steps.slice(from, from + size), trace));
  }
  return made;
}

function column(steps, trace) {
  const accepted = new Map();
  for (const { round } of steps) {
    for (const [source, count] of trace.acceptedIn(round)) {
      accepted.set(source, (accepted.get(source) ?? 0) + count / steps.length);
    }
  }
  return {
    first: steps[0].round,
    last: steps.at(-1).round,
    verified: total(steps, "verified") / steps.length,
    accepted,
    acceptedTokens: total(steps, "accepted") / steps.length,
    draftMs: total(steps, "draft_ms") / steps.length,
    verifyMs: total(steps, "verify_ms") / steps.length,
  };
}

// The tokens that came with the prompt, before the first round.
function prompted(trace) {
  const first = trace.rounds.findIndex((round) => round > 0);
  return first < 0 ? trace.length : first;
}

function total(steps, name) {
  return steps.reduce((sum, step) => sum + step[name], 0);
}
