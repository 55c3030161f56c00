// What a question can be asked with, beside its text. Empty means: as the gateway is set.
//
// The bounds are the gateway's own (docs/RESPONSES.md); it says what is wrong with anything else.

import { describeDrafter } from "./sources.js";

const POLICIES = [
  ["cost", "cost: drafts as far as it pays"],
  ["fixed", "fixed: always drafts the length"],
  ["ema-tiers", "ema-tiers: 1, 3 or 7 tokens"],
  ["confidence", "confidence: as far as the drafter is sure"],
  ["slo", "slo: keeps a time per token"],
  ["off", "off: plain decoding"],
];
const RULES = [
  ["coupled", "coupled: token by token the plain answer"],
  ["classic", "classic: the same distribution"],
  ["typical", "typical: lossy"],
];
const PACINGS = [
  ["none", "at once"],
  ["even", "evenly"],
];

// `group` is where a field is shown and, for "speculation", where the request has it.
export const FIELDS = [
  choice("model", "sampling", "Model"),
  number("temperature", "sampling", "Temperature", { min: 0, max: 2, step: 0.05 }),
  number("top_p", "sampling", "Top-p", { min: 0, max: 1, step: 0.01 }),
  number("max_output_tokens", "sampling", "Most tokens", { min: 1, max: 1_000_000, step: 1 }),
  number("seed", "sampling", "Seed", { min: -(2 ** 53) + 1, max: 2 ** 53 - 1, step: 1 }),
  choice("drafter", "speculation", "Drafter"),
  choice("policy", "speculation", "Policy", POLICIES),
  number("length", "speculation", "Draft length", { min: 1, max: 31, step: 1 }),
  number("branches", "speculation", "Branches", { min: 1, max: 8, step: 1 }),
  number("tpot_ms", "speculation", "Time per token, ms", { min: 0.01, max: 60_000, step: "any" }),
  choice("rule", "speculation", "Rule", RULES),
  choice("pacing", "speculation", "Release tokens", PACINGS),
];

// The models of a gateway, the first of which it answers by unless it is told otherwise.
export function modelOptions(models) {
  return [["", `As set: ${models[0].id}`], ...models.map(({ id }) => [id, id])];
}

// The drafters that may be named to a gateway whose package has `drafters`.
export function drafterOptions(drafters, usual) {
  const learned = drafters.filter((name) => name !== "ngram");
  const names = [...drafters, ...learned.map((name) => `ngram+${name}`)];
  return [
    ["", usual ? `As set: ${describeDrafter(usual)}` : "As set"],
    ...names.map((name) => [name, describeDrafter(name)]),
    ["off", "None"],
  ];
}

// The values that a form's texts mean; { values, problems } by the fields' names.
export function readValues(texts) {
  const values = {};
  const problems = {};
  for (const field of FIELDS) {
    const text = (texts[field.name] ?? "").trim();
    if (text === "") continue;
    const problem = field.kind === "number" ? problemOf(field, text) : null;
    if (problem) problems[field.name] = problem;
    else values[field.name] = field.kind === "number" ? Number(text) : text;
  }
  if (values.policy === "fixed" && values.length === undefined) {
    problems.length = "The policy fixed needs a draft length.";
  }
  if (values.policy === "slo" && values.tpot_ms === undefined) {
    problems.tpot_ms = "The policy slo needs a time per token.";
  }
  return { values, problems };
}

function problemOf({ label, min, max, step }, text) {
  const value = Number(text);
  if (!Number.isFinite(value)) return `${label} must be a number.`;
  if (value < min || value > max) return `${label} must be from ${min} to ${max}.`;
  return step === 1 && !Number.isInteger(value) ? `${label} must be a whole number.` : null;
}

function number(name, group, label, bounds) {
  return { name, group, label, kind: "number", ...bounds };
}

function choice(name, group, label, options = []) {
  return { name, group, label, kind: "choice", options: [["", "As set"], ...options] };
}
