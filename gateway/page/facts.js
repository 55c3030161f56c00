// What is known of one token, as names and values to show.

import { count, milliseconds, percent, spelled } from "./format.js";
import { describeSource, TARGET } from "./sources.js";

export function tokenFacts(run, index) {
  const { trace } = run;
  const source = trace.sources[index];
  return {
    text: spelled(run.text.slice(trace.begin(index), trace.ends[index])),
    source,
    rows: [
      ["Source", sourceFact(source)],
      ["Round", roundFact(trace, index)],
      ["Probability", probabilityFact(trace.logprobs[index])],
      ["Time", timeFact(trace, index)],
    ],
  };
}

// The same in a sentence, for who hears it.
export function tokenSentence(run, index) {
  const { text, rows } = tokenFacts(run, index);
  const said = rows.map(([name, value]) => `${name.toLowerCase()} ${value}`).join("; ");
  return `Token ${index + 1} of ${run.trace.length}, ${text}: ${said}`;
}

function sourceFact(source) {
  const { label } = describeSource(source);
  return source === TARGET ? `${label}, its own token` : `${label}, drafted and accepted`;
}

function roundFact(trace, index) {
  const round = trace.rounds[index];
  if (round === 0) return "0, with the prompt";
  const step = trace.steps.find((each) => each.round === round);
  if (!step) return `${round}`;
  const drafted = step.verified === 0 ? "nothing drafted" : `${count(step.verified, "token")} drafted`;
  return step.verified === 0 ? `${round}, ${drafted}` : `${round}, ${drafted}, ${step.accepted} accepted`;
}

function probabilityFact(logprob) {
  return logprob === null || logprob === undefined ? "not asked for" : percent(Math.exp(logprob), 1);
}

function timeFact(trace, index) {
  const at = trace.ms[index];
  const step = trace.steps.find((each) => each.round === trace.rounds[index]);
  const took = step ? `, its round took ${milliseconds(step.draft_ms + step.verify_ms)}` : "";
  return `${milliseconds(at)} after the question${took}`;
}
