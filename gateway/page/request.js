// The `response.create` that asks for an answer.

import { FIELDS } from "./parameters.js";

const MOST_FRESH_SEED = 2 ** 31;

// `values` are as `readValues` gives them. Nothing is stored at the gateway: the conversation is
// sent whole, and its K/V is found again by its beginning.
export function requestBody({ input, system, values, seed, plain, probabilities }) {
  const body = { type: "response.create", input, store: false, seed, include: ["speculation"] };
  if (probabilities) body.include.push("message.output_text.logprobs");
  if (system.trim() !== "") body.instructions = system;
  const speculation = {};
  for (const { name, group } of FIELDS) {
    if (values[name] === undefined || name === "seed") continue;
    if (group === "speculation") speculation[name] = values[name];
    else body[name] = values[name];
  }
  if (plain) body.speculation = { off: true };
  else if (Object.keys(speculation).length > 0) body.speculation = speculation;
  return body;
}

// Always sent, so that the same question can be asked again, with or without speculation.
export function seedFor(values) {
  if (values.seed !== undefined) return values.seed;
  return crypto.getRandomValues(new Uint32Array(1))[0] % MOST_FRESH_SEED;
}

// Whether these values speculate at all: otherwise there is nothing to compare.
export function speculates(values) {
  return values.policy !== "off" && values.drafter !== "off";
}
