// An answer's tokens, one by one, and its rounds. Positions count UTF-16 units of the text.

import { TARGET } from "./sources.js";

const NONE = new Map();

export class Trace {
  constructor() {
    this.ends = [];
    this.sources = [];
    this.rounds = [];
    this.ms = [];
    this.logprobs = [];
    this.steps = [];
    // Sums, so that nothing is counted anew while an answer grows.
    this.verified = 0;
    this.accepted = 0;
    this.bySource = new Map();
    this.drafted = new Map();
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
      const { sources, token_rounds: rounds, token_ms: ms } = speculation;
      const logprob = logprobs[index]?.logprob ?? null;
      this.#addToken(text.length, sources[index], rounds[index], ms[index], logprob);
    });
    speculation.rounds.forEach((step) => this.#addStep(step));
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
    return this.bySource;
  }

  // The drafted tokens of a round that became part of the answer, by source.
  acceptedIn(round) {
    return this.drafted.get(round) ?? NONE;
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
    const { names, sources, rounds, ms: times, logprobs } = packed;
    packed.lengths.forEach((length, index) => {
      trace.#addToken(length, names[sources[index]], rounds[index], times[index], logprobs[index]);
    });
    for (const [round, ms, draft_ms, verify_ms, verified, accepted] of packed.steps) {
      trace.#addStep({ round, ms, draft_ms, verify_ms, verified, accepted });
    }
    return trace;
  }

  #addToken(length, source, round, ms, logprob) {
    this.ends.push(this.end + length);
    this.sources.push(source);
    this.rounds.push(round);
    this.ms.push(ms);
    this.logprobs.push(logprob);
    addOne(this.bySource, source);
    if (source === TARGET) return;
    if (!this.drafted.has(round)) this.drafted.set(round, new Map());
    addOne(this.drafted.get(round), source);
  }

  #addStep(step) {
    this.steps.push(step);
    this.verified += step.verified;
    this.accepted += step.accepted;
  }
}

function addOne(counts, name) {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}

function shortened(value, digits) {
  return Number(value.toFixed(digits));
}
