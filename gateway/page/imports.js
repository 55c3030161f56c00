// Conversations from files that `exports.js` wrote. A file may be anything: what is taken of it was
// checked, and only what the page knows is taken.

import { freshId, newConversation, rename, unpack } from "./conversation.js";
import { FORMAT, VERSION } from "./exports.js";
import { COMPARISONS } from "./settings.js";

export const MOST_BYTES = 32 * 2 ** 20;
const FIGURES = ["tau", "alpha", "ttft_ms", "tpot_ms"];
const COUNTS = ["rounds", "draft_n", "draft_n_accepted"];
const NAMES = ["drafter", "policy", "rule"];
const STEP = 6;

export class UnreadableError extends Error {}

// The conversation in `text` (null: it is too long to be read), with new ids: another one of the
// same content may be here. Raises `UnreadableError` that says what is wrong.
export function readExport(text) {
  if (text === null) fail(`It is larger than ${MOST_BYTES / 2 ** 20} MiB.`);
  const file = parsed(text);
  if (!isObject(file) || file.format !== FORMAT) {
    fail("It holds no conversation: “Export” and “JSON” write files that can be imported.");
  }
  if (file.version !== VERSION) fail(`This page reads version ${VERSION} of such files, not this one's.`);
  need(Array.isArray(file.messages), "the messages");
  const messages = file.messages.map((message, index) => messageOf(message, `message ${index + 1}`));
  const conversation = unpack({
    ...newConversation(isCount(file.updated) ? file.updated : Date.now()),
    system: textOf(file.system ?? "", "the system prompt"),
    messages,
  });
  rename(conversation, textOf(file.title, "the title"));
  conversation.named = file.named === true;
  return conversation;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return fail("It is not JSON.");
  }
}

function messageOf(message, where) {
  need(isObject(message), where);
  const id = freshId();
  if (message.role === "user") return { id, role: "user", text: textOf(message.text, `${where}, its text`) };
  need(message.role === "assistant", `${where}, its role`);
  const { runs, compare } = message;
  need(Array.isArray(runs) && (runs.length === 1 || runs.length === 2), `${where}, its runs`);
  need(compare === null || COMPARISONS.includes(compare), `${where}, how it was compared`);
  return { id, role: "assistant", compare, runs: runs.map((run) => runOf(run, where)) };
}

function runOf(run, where) {
  need(isObject(run), `${where}, its run`);
  const text = textOf(run.text, `${where}, its text`);
  need(run.seed === null || Number.isSafeInteger(run.seed), `${where}, its seed`);
  return {
    plain: run.plain === true,
    seed: run.seed,
    status: textOf(run.status, `${where}, its status`),
    text,
    responseId: null,
    timings: orNull(run.timings, (timings) => timingsOf(timings, where)),
    usage: orNull(run.usage, (usage) => usageOf(usage, where)),
    error: orNull(run.error, ({ code, message }) => ({
      code: String(code), message: textOf(message, `${where}, its error`),
    })),
    trace: orNull(run.trace, (trace) => traceOf(trace, text, `${where}, its tokens`)),
  };
}

function timingsOf(timings, where) {
  need(isObject(timings), `${where}, its timings`);
  for (const name of COUNTS) need(isCount(timings[name]), `${where}, ${name}`);
  for (const name of FIGURES) need(timings[name] === null || isNumber(timings[name]), `${where}, ${name}`);
  for (const name of NAMES) need(typeof timings[name] === "string", `${where}, ${name}`);
  for (const name of ["lossless", "exact"]) need(typeof timings[name] === "boolean", `${where}, ${name}`);
  return timings;
}

function usageOf(usage, where) {
  need(isObject(usage), `${where}, its usage`);
  for (const name of ["input_tokens", "output_tokens"]) need(isCount(usage[name]), `${where}, ${name}`);
  return usage;
}

// As `Trace.pack` made it: as many of everything as there are tokens, which are in the text.
function traceOf(trace, text, where) {
  need(isObject(trace), where);
  const { names, lengths, sources, rounds, ms, logprobs, steps } = trace;
  need(isListOf(names, (name) => typeof name === "string"), where);
  need(isListOf(lengths, isCount), where);
  need(lengths.reduce((sum, length) => sum + length, 0) <= text.length, where);
  need(isListOf(sources, (source) => isCount(source) && source < names.length), where);
  need(isListOf(rounds, isCount) && isListOf(ms, isNumber), where);
  need(isListOf(logprobs, (each) => each === null || isNumber(each)), where);
  need([sources, rounds, ms, logprobs].every((list) => list.length === lengths.length), where);
  need(isListOf(steps, (step) => isListOf(step, isNumber) && step.length === STEP), where);
  return { names, lengths, sources, rounds, ms, logprobs, steps };
}

function orNull(value, read) {
  return value === null || value === undefined ? null : read(value);
}

function textOf(value, where) {
  need(typeof value === "string", where);
  return value;
}

function need(holds, where) {
  if (!holds) fail(`It is damaged: ${where} cannot be read.`);
}

function fail(message) {
  throw new UnreadableError(message);
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isListOf(value, isOne) {
  return Array.isArray(value) && value.every(isOne);
}

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}
