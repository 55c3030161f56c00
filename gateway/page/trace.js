// An answer's tokens, one by one, and its rounds. Positions count UTF-16 units of the text.

export class Trace {
  constructor() {
    this.ends = [];
    this.sources = [];
    this.rounds = [];
    this.ms = [];
    this.logprobs = [];
    this.steps = [];
  }

  get length() {
    return this.ends.length;
  }

  // Where the text of the last token ends.
  get end() {
    return this.ends.at(-1) ?? 0;
  }

  // The `speculation` and the `logprobs` of one delta.
  add(speculation, logprobs = []) {
    speculation.texts.forEach((text, index) => {
      this.ends.push(this.end + text.length);
      this.sources.push(speculation.sources[index]);
      this.rounds.push(speculation.token_rounds[index]);
      this.ms.push(speculation.token_ms[index]);
      this.logprobs.push(logprobs[index]?.logprob ?? null);
    });
    this.steps.push(...speculation.rounds);
  }

  begin(index) {
    return index > 0 ? this.ends[index - 1] : 0;
  }

  // The token that the character at `offset` belongs to; -1 behind the last one.
  at(offset) {
    let low = 0;
    let high = this.ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] > offset) high = middle;
      else low = middle + 1;
    }
    return low < this.ends.length ? low : -1;
  }

  // Tokens by source, in no order.
  counts() {
    const counts = new Map();
    for (const source of this.sources) counts.set(source, (counts.get(source) ?? 0) + 1);
    return counts;
  }

  // Small enough to be kept with a conversation.
  pack() {
    const names = [...new Set(this.sources)];
    return {
      names,
      sources: this.sources.map((source) => names.indexOf(source)),
      lengths: this.ends.map((end, index) => end - this.begin(index)),
      rounds: this.rounds,
      ms: this.ms.map((each) => shortened(each, 1)),
      logprobs: this.logprobs.map((each) => (each === null ? null : shortened(each, 3))),
      steps: this.steps.map((step) => [
        step.round,
        shortened(step.ms, 1),
        shortened(step.draft_ms, 2),
        shortened(step.verify_ms, 2),
        step.verified,
        step.accepted,
      ]),
    };
  }

  // What was packed; an empty trace where that is none.
  static unpack(packed) {
    const trace = new Trace();
    if (!packed || !Array.isArray(packed.lengths) || !Array.isArray(packed.steps)) return trace;
    for (const length of packed.lengths) trace.ends.push(trace.end + length);
    trace.sources = packed.sources.map((index) => packed.names[index]);
    trace.rounds = [...packed.rounds];
    trace.ms = [...packed.ms];
    trace.logprobs = [...packed.logprobs];
    trace.steps = packed.steps.map(([round, ms, draft_ms, verify_ms, verified, accepted]) => (
      { round, ms, draft_ms, verify_ms, verified, accepted }
    ));
    return trace;
  }
}

function shortened(value, digits) {
  return Number(value.toFixed(digits));
}
