// Parameters as they are written, and the request that they make.

import assert from "node:assert/strict";
import { test } from "node:test";

import { drafterOptions, FIELDS, modelOptions, readValues } from "../../gateway/page/parameters.js";
import { requestBody, seedFor, speculates } from "../../gateway/page/request.js";

const ASKED = { input: [{ role: "user", content: "Hi" }], system: "", values: {}, seed: 7, plain: false, probabilities: false };

test("an empty form asks for nothing in particular", () => {
  assert.deepEqual(readValues({}), { values: {}, problems: {} });
  assert.deepEqual(requestBody(ASKED), {
    type: "response.create", input: ASKED.input, store: false, seed: 7, include: ["speculation"],
  });
});

test("what is set is sent where the gateway expects it", () => {
  const texts = {
    temperature: "0.8", top_p: " 0.9 ", max_output_tokens: "100", seed: "5", drafter: "ngram+eagle3",
    policy: "fixed", length: "4", branches: "2", rule: "classic", pacing: "even",
  };
  const { values, problems } = readValues(texts);
  assert.deepEqual(problems, {});
  const body = requestBody({ ...ASKED, values, system: "Be brief.", seed: seedFor(values), probabilities: true });
  assert.equal(body.instructions, "Be brief.");
  assert.deepEqual([body.temperature, body.top_p, body.max_output_tokens, body.seed], [0.8, 0.9, 100, 5]);
  assert.deepEqual(body.include, ["speculation", "message.output_text.logprobs"]);
  assert.deepEqual(body.speculation, {
    drafter: "ngram+eagle3", policy: "fixed", length: 4, branches: 2, rule: "classic", pacing: "even",
  });
});

test("a plain run only says that it is plain", () => {
  const body = requestBody({ ...ASKED, values: { policy: "fixed", length: 4, temperature: 1 }, plain: true });
  assert.deepEqual(body.speculation, { off: true });
  assert.equal(body.temperature, 1);
});

test("what is wrong is said of its field", () => {
  const { values, problems } = readValues({ temperature: "3", top_p: "x", max_output_tokens: "1.5", seed: "1e999", policy: "slo" });
  assert.deepEqual(values, { policy: "slo" });
  assert.deepEqual(problems, {
    temperature: "Temperature must be from 0 to 2.",
    top_p: "Top-p must be a number.",
    max_output_tokens: "Most tokens must be a whole number.",
    seed: "Seed must be a number.",
    tpot_ms: "The policy slo needs a time per token.",
  });
  assert.equal(readValues({ policy: "fixed" }).problems.length, "The policy fixed needs a draft length.");
});

test("fields have names of their own", () => {
  assert.equal(new Set(FIELDS.map(({ name }) => name)).size, FIELDS.length);
});

test("a seed that nobody chose is drawn", () => {
  const drawn = new Set(Array.from({ length: 20 }, () => seedFor({})));
  assert.ok(drawn.size > 15);
  for (const seed of drawn) assert.ok(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 31);
  assert.equal(seedFor({ seed: 0 }), 0);
});

test("without speculation there is nothing to compare", () => {
  assert.ok(speculates({}));
  assert.ok(!speculates({ policy: "off" }));
  assert.ok(!speculates({ drafter: "off" }));
});

test("the package's drafters are offered, alone and with n-grams", () => {
  assert.deepEqual(drafterOptions(["ngram", "eagle3"], "ngram+eagle3"), [
    ["", "As set: N-grams + EAGLE-3"],
    ["ngram", "N-grams"],
    ["eagle3", "EAGLE-3"],
    ["ngram+eagle3", "N-grams + EAGLE-3"],
    ["off", "None"],
  ]);
});

test("a model is named where one was chosen", () => {
  const { values, problems } = readValues({ model: "b" });
  assert.deepEqual(problems, {});
  assert.equal(requestBody({ ...ASKED, values }).model, "b");
  assert.equal("model" in requestBody(ASKED), false);
  const options = modelOptions([{ id: "a" }, { id: "b" }]);
  assert.deepEqual(options, [["", "As set: a"], ["a", "a"], ["b", "b"]]);
});
