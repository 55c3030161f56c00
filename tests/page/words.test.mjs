// Numbers, tokens and files as people read them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { append, newConversation, pack, question, reply } from "../../gateway/page/conversation.js";
import { asJson, asMarkdown, fileName } from "../../gateway/page/exports.js";
import { tokenFacts, tokenSentence } from "../../gateway/page/facts.js";
import { count, milliseconds, percent, ratio, spelled, times, when } from "../../gateway/page/format.js";
import { describeDrafter, describeSource, inOrder, placeClass } from "../../gateway/page/sources.js";
import { describe } from "../../gateway/page/timeline.js";
import { endedRun, sampleTrace } from "./samples.mjs";

test("numbers have as many digits as they are worth", () => {
  assert.deepEqual([1.234, 12.34, 123.4, 12345].map(milliseconds), ["1.23 ms", "12.3 ms", "123 ms", "12.3 s"]);
  assert.deepEqual([ratio(2), times(1.616), percent(0.7123), percent(0.5, 1)], ["2.00", "1.62×", "71 %", "50.0 %"]);
  assert.deepEqual([count(1, "token"), count(0, "token")], ["1 token", "0 tokens"]);
});

test("what is not known is a dash", () => {
  for (const write of [milliseconds, ratio, times, percent]) {
    assert.deepEqual([write(null), write(undefined), write(Number.NaN)], ["–", "–", "–"]);
  }
});

test("spaces in tokens are seen", () => {
  assert.equal(spelled(" a\n\tb"), "␣a⏎⇥b");
  assert.equal(spelled(""), "(part of a character)");
});

test("times are as short as they are clear", () => {
  const now = new Date(2026, 2, 3, 14, 0).getTime();
  assert.equal(when(new Date(2026, 2, 3, 9, 5).getTime(), now, "en-GB"), "09:05");
  assert.equal(when(new Date(2026, 0, 9).getTime(), now, "en-GB"), "9 Jan");
  assert.equal(when(new Date(2025, 0, 9).getTime(), now, "en-GB"), "9 Jan 2025");
});

test("sources have names and places, unknown ones too", () => {
  assert.equal(describeSource("eagle3").label, "EAGLE-3");
  assert.equal(describeDrafter("ngram+mtp"), "N-grams + MTP");
  assert.equal(placeClass("grammar"), placeClass("grammar"));
  assert.match(placeClass("grammar"), /^place-(9|1[0-2])$/);
  assert.deepEqual(inOrder(["zebra", "eagle3", "target", "ngram"]).slice(0, 3), ["target", "ngram", "eagle3"]);
});

test("a token's facts", () => {
  const run = endedRun("one two three four");
  const { text, source, rows } = tokenFacts(run, 1);
  assert.deepEqual([text, source], ["␣two", "ngram"]);
  assert.deepEqual(Object.fromEntries(rows), {
    Source: "N-grams, drafted and accepted",
    Round: "1, 3 tokens drafted, 2 accepted",
    Probability: "100.0 %",
    Time: "100 ms after the question, its round took 10.0 ms",
  });
  assert.deepEqual(Object.fromEntries(tokenFacts(run, 0).rows), {
    Source: "Model, its own token",
    Round: "0, with the prompt",
    Probability: "60.7 %",
    Time: "50.0 ms after the question",
  });
  run.trace.logprobs[1] = null;
  assert.equal(tokenFacts(run, 1).rows[2][1], "not asked for");
  assert.ok(tokenSentence(run, 1).startsWith("Token 2 of 4, ␣two: source N-grams"));
});

test("the rounds' picture has words", () => {
  assert.equal(describe(sampleTrace()), "1 round, 3.00 tokens per round, 2 of 3 drafted tokens accepted");
});

test("conversations become files", () => {
  const conversation = newConversation(1);
  conversation.system = "Be brief.\nBe kind.";
  append(conversation, question("Why?"), 1);
  append(conversation, reply([endedRun("Because.")], null), 1);
  assert.equal(asMarkdown(conversation), [
    "# Why?", "> Be brief.\n> Be kind.", "## Question", "Why?", "## Answer", "Because.",
    "*seed 7, 4 tokens, N-grams, tau 3.00, alpha 0.67, 5.00 ms per token*\n",
  ].join("\n\n"));
  const written = JSON.parse(asJson(pack(conversation)));
  assert.deepEqual([written.format, written.version, written.title], ["outpace-conversation", 1, "Why?"]);
  assert.equal(written.messages[1].runs[0].trace.lengths.length, 4);
  assert.equal(fileName("Why is the sky blue?", "md"), "why-is-the-sky-blue.md");
  assert.equal(fileName("../../etc/passwd", "md"), "etc-passwd.md");
  assert.equal(fileName("…", "json"), "conversation.json");
});
