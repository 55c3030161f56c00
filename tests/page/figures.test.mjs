// What rounds add up to, against plain decoding, and in columns.

import assert from "node:assert/strict";
import { test } from "node:test";

import { columns, figuresOf, liveFigures, plainTokenMs, speedUp } from "../../gateway/page/figures.js";
import { newRun } from "../../gateway/page/run.js";
import { Trace } from "../../gateway/page/trace.js";
import { endedRun, sampleTrace, speculation, STATUS, step } from "./samples.mjs";

test("while it streams, an answer's figures come from its tokens and rounds", () => {
  const figures = liveFigures(sampleTrace());
  assert.equal(figures.tau, 3);
  assert.equal(figures.alpha, 2 / 3);
  assert.equal(figures.tpot, 50 / 3);
  assert.equal(figures.ttft, 50);
  assert.deepEqual([figures.tokens, figures.rounds, figures.verified, figures.accepted], [4, 1, 3, 2]);
});

test("what is not known is null, not zero", () => {
  const { tau, alpha, tpot, ttft, tokens } = liveFigures(new Trace());
  assert.deepEqual([tau, alpha, tpot, ttft, tokens], [null, null, null, null, 0]);
});

test("at the end the gateway's own figures count", () => {
  const figures = figuresOf(endedRun("one two three four"));
  assert.deepEqual([figures.tau, figures.alpha, figures.tpot, figures.tokens], [3, 0.6667, 5, 4]);
});

test("a plain token costs the narrowest run behind what is cached", () => {
  assert.equal(plainTokenMs(STATUS, 0), 10.5);
  assert.equal(plainTokenMs(STATUS, 100), 10 + 2 * (0.01 * 100 + 0.001 * 100 * 2) + 0.5);
  assert.equal(plainTokenMs(null, 0), null);
  assert.equal(plainTokenMs({ run_ms: {}, costs: STATUS.costs }, 0), null);
});

test("the speed-up is measured where there is a plain run, otherwise estimated", () => {
  const run = endedRun("text");
  const plain = endedRun("text", { plain: true, tpot_ms: 12 });
  assert.deepEqual(speedUp(run, plain, STATUS), { ratio: 2.4, known: "measured" });
  const estimated = speedUp(run, null, STATUS);
  assert.equal(estimated.known, "estimated");
  assert.equal(estimated.ratio, plainTokenMs(STATUS, 22) / 5);
  assert.equal(speedUp(run, null, null), null);
  assert.equal(speedUp(newRun({ seed: 1 }), null, STATUS), null);
});

test("rounds stand in columns by who was accepted", () => {
  const [only, ...others] = columns(sampleTrace(), 10);
  assert.equal(others.length, 0);
  assert.deepEqual([...only.accepted], [["ngram", 2]]);
  assert.deepEqual([only.first, only.last, only.verified, only.verifyMs, only.draftMs], [1, 1, 3, 9, 1]);
});

test("many rounds share columns, which show their means", () => {
  const trace = new Trace();
  for (let round = 1; round <= 10; round += 1) {
    const accepted = round % 2;
    const tokens = [["a", "eagle3", round, round], ["b", "target", round, round]].slice(1 - accepted);
    trace.add(speculation(tokens, [step(round, 2, accepted)]));
  }
  const made = columns(trace, 4);
  assert.deepEqual(made.map(({ first, last }) => [first, last]), [[1, 3], [4, 6], [7, 9], [10, 10]]);
  assert.deepEqual(made.map(({ acceptedTokens }) => Math.round(acceptedTokens * 3)), [2, 1, 2, 0]);
  assert.equal(made[3].accepted.size, 0);
  assert.deepEqual(columns(new Trace(), 4), []);
  assert.deepEqual(columns(trace, 4, true).map(({ first, last }) => [first, last]), [[7, 7], [8, 8], [9, 9], [10, 10]]);
  assert.deepEqual(columns(trace, 20, true).length, 10);
});
