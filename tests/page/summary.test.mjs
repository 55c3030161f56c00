// What an answer says of itself and of its comparison.

import assert from "node:assert/strict";
import { test } from "node:test";

import { newRun } from "../../gateway/page/run.js";
import { metersOf, stateOf, summaryOf, verdictOf } from "../../gateway/page/summary.js";
import { endedRun, STATUS } from "./samples.mjs";

const said = (parts) => parts.map(({ name, value }) => `${name} ${value}`.trim());

test("a run's figures in a line", () => {
  const run = endedRun("one two three four");
  assert.deepEqual(said(summaryOf(run, null, STATUS)), ["4 tokens", "5.00 ms/token", "tau 3.00", "alpha 0.67", "speed ≈ 2.21×", "seed 7"]);
  assert.deepEqual(said(summaryOf(newRun({ seed: 1 }), null, STATUS)), []);
});

test("plain runs, and runs that verified nothing, claim no speed-up", () => {
  const plain = endedRun("text", { plain: true, draft_n: 0, alpha: null, tau: 1 });
  assert.deepEqual(said(summaryOf(plain, null, STATUS)), ["4 tokens", "5.00 ms/token", "seed 7"]);
});

test("a lossy answer is marked", () => {
  const lossy = endedRun("text", { lossless: false, rule: "typical" });
  assert.ok(said(summaryOf(lossy, null, STATUS)).includes("lossy"));
});

test("the meters say how the speed-up is known", () => {
  const run = endedRun("text");
  const help = (plain, status) => metersOf(run, plain, status)[3].help;
  assert.equal(help(null, STATUS), "estimated from run costs");
  assert.equal(help(endedRun("text", { plain: true }), STATUS), "measured beside it");
  assert.deepEqual(metersOf(null, null, null).map(({ value }) => value), ["–", "–", "–", "–"]);
});

test("a failure says what the gateway said", () => {
  const run = newRun({ seed: 1 });
  run.status = "failed";
  run.error = { code: "queue_full", message: "The queue is full." };
  assert.equal(stateOf(run), "The queue is full.");
});

const message = (one, other, compare = "one after another") => ({ compare, runs: [one, other] });

test("identical texts are said to be, with the times", () => {
  const verdict = verdictOf(message(endedRun("same"), endedRun("same", { plain: true, tpot_ms: 8 })));
  assert.equal(verdict.same, true);
  assert.equal(verdict.text, "Identical text, 4 tokens. Speculation was 1.60× as fast: 5.00 ms against 8.00 ms per token, asked one after another.");
});

test("texts that part say where and why", () => {
  const plain = endedRun("same", { plain: true });
  const reasons = [
    [{ lossless: false, rule: "typical" }, "The rule typical is lossy."],
    [{ rule: "classic" }, "The rule classic promises the same distribution, not the same text."],
    [{ exact: false }, "Trees, or kernels that are not exact here, may turn a near tie."],
    [{}, "They should not: the rule coupled promises the same text."],
  ];
  for (const [changed, reason] of reasons) {
    const verdict = verdictOf(message(endedRun("sale", changed), plain));
    assert.equal(verdict.same, false);
    assert.ok(verdict.text.startsWith(`The texts part at character 3. ${reason}`), verdict.text);
  }
});

test("there is no verdict before both have ended, and none of what was stopped", () => {
  assert.equal(verdictOf(message(endedRun("a"), newRun({ seed: 7, plain: true }))), null);
  assert.equal(verdictOf({ compare: null, runs: [endedRun("a")] }), null);
  const stopped = endedRun("a");
  stopped.status = "cancelled";
  assert.equal(verdictOf(message(stopped, endedRun("a", { plain: true }))).same, null);
});
