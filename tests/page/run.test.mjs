// A run from its events, and what a conversation keeps of it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { firstDifference, hasEnded, hear, newRun, packRun, unpackRun } from "../../gateway/page/run.js";
import { endedRun, speculation, step, timings } from "./samples.mjs";

test("events become text, tokens and an end", () => {
  const run = newRun({ seed: 7 });
  hear(run, { type: "response.created", response: { id: "resp_1" } });
  assert.deepEqual([run.status, run.responseId], ["reading", "resp_1"]);
  hear(run, { type: "response.output_text.delta", delta: "Hi", logprobs: [{ logprob: -1 }], speculation: speculation([["Hi", "target", 0, 5]]) });
  hear(run, { type: "response.output_text.delta", delta: " you", speculation: speculation([[" you", "ngram", 1, 9]], [step(1, 1, 1)]) });
  assert.deepEqual([run.status, run.text, run.trace.length], ["streaming", "Hi you", 2]);
  assert.deepEqual(run.trace.logprobs, [-1, null]);
  hear(run, { type: "response.completed", response: { status: "completed", timings: timings(), usage: { output_tokens: 2 } } });
  assert.ok(hasEnded(run));
  assert.equal(run.timings.tau, 3);
});

test("a gateway that tells no tokens still tells its text", () => {
  const run = newRun({ seed: 7 });
  hear(run, { type: "response.output_text.delta", delta: "Hi", speculation: { source: "target", ids: [1] } });
  assert.deepEqual([run.text, run.trace.length], ["Hi", 0]);
});

test("every end has its name", () => {
  const ends = [
    [{ status: "completed" }, "completed"],
    [{ status: "incomplete" }, "length"],
    [{ status: "cancelled" }, "cancelled"],
    [{ status: "failed", error: { code: "server_error", message: "gone" } }, "failed"],
  ];
  for (const [response, status] of ends) {
    const run = newRun({ seed: 7 });
    hear(run, { type: "response.incomplete", response });
    assert.equal(run.status, status);
    assert.equal(run.error?.message, response.error?.message);
  }
  const refused = newRun({ seed: 7 });
  hear(refused, { type: "error", status: 429, error: { code: "queue_full", message: "full" } });
  assert.deepEqual([refused.status, refused.error.message], ["failed", "full"]);
});

test("what is kept comes back, with or without its tokens", () => {
  const run = endedRun("one two three four");
  assert.deepEqual(unpackRun(JSON.parse(JSON.stringify(packRun(run)))), run);
  assert.equal(unpackRun(packRun(run, false)).trace.length, 0);
  assert.equal(unpackRun(packRun(run, false)).text, run.text);
});

test("an answer that was running when the page was closed was interrupted", () => {
  const run = newRun({ seed: 7 });
  run.status = "streaming";
  assert.equal(unpackRun(packRun(run)).status, "interrupted");
});

test("texts part at their first difference", () => {
  assert.equal(firstDifference("abc", "abc"), -1);
  assert.equal(firstDifference("abc", "abd"), 2);
  assert.equal(firstDifference("abc", "ab"), 2);
  assert.equal(firstDifference("", "a"), 0);
});
