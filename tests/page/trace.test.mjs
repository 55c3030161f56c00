// Tokens by their place in the text, and what is kept of them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Trace } from "../../gateway/page/trace.js";
import { sampleTrace, speculation, step } from "./samples.mjs";

test("every character belongs to its token", () => {
  const trace = sampleTrace();
  const text = "one two three four";
  const spelled = Array.from({ length: trace.length }, (_, index) => text.slice(trace.begin(index), trace.ends[index]));
  assert.deepEqual(spelled, ["one", " two", " three", " four"]);
  assert.deepEqual([0, 2, 3, 12, 13, 17, 18].map((at) => trace.at(at)), [0, 0, 1, 2, 3, 3, -1]);
  assert.equal(trace.end, text.length);
});

test("half a character has no place, the token that completes it has all of it", () => {
  const trace = new Trace();
  trace.add(speculation([["a", "target", 0, 1], ["", "ngram", 1, 2], ["😀", "ngram", 1, 2]]));
  assert.deepEqual([0, 1, 2, 3].map((at) => trace.at(at)), [0, 2, 2, -1]);
  assert.deepEqual(trace.logprobs, [null, null, null]);
});

test("tokens are counted by source", () => {
  assert.deepEqual([...sampleTrace().counts()], [["target", 2], ["ngram", 2]]);
});

test("what is packed comes back", () => {
  const trace = sampleTrace();
  assert.deepEqual(Trace.unpack(JSON.parse(JSON.stringify(trace.pack()))), trace);
});

test("times are kept as exactly as anybody looks at them", () => {
  const trace = new Trace();
  trace.add(speculation([["a", "target", 0, 1.23456]], [step(1, 0, 0, 2.3456)]), [{ logprob: -1.23456 }]);
  const { ms, logprobs, steps } = trace.pack();
  assert.deepEqual([ms, logprobs, steps], [[1.2], [-1.235], [[1, 2.3, 1, 9, 0, 0]]]);
});

test("what is no trace is an empty one", () => {
  for (const packed of [null, undefined, {}, { lengths: 3 }, { lengths: [] }]) {
    assert.equal(Trace.unpack(packed).length, 0);
  }
});
