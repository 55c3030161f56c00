// Conversations from files: what was exported comes back, anything else is refused in words.

import assert from "node:assert/strict";
import { test } from "node:test";

import { append, newConversation, pack, question, reply } from "../../gateway/page/conversation.js";
import { asJson } from "../../gateway/page/exports.js";
import { readExport, UnreadableError } from "../../gateway/page/imports.js";
import { endedRun } from "./samples.mjs";

function exported() {
  const conversation = newConversation(5);
  conversation.system = "Be brief.";
  append(conversation, question("Hi"), 5);
  append(conversation, reply([endedRun("one two three four"), endedRun("one", { plain: true })], "at once"), 6);
  return { conversation, file: JSON.parse(asJson(pack(conversation))) };
}

function refusal(text) {
  try {
    readExport(text);
  } catch (error) {
    assert.ok(error instanceof UnreadableError, `${error}`);
    return error.message;
  }
  return assert.fail("it was taken");
}

test("what was exported comes back, with ids of its own", () => {
  const { conversation, file } = exported();
  file.messages[1].runs[1].text = "one two three four";
  conversation.messages[1].runs[1].text = "one two three four";
  const back = readExport(JSON.stringify(file));
  assert.notEqual(back.id, conversation.id);
  const ids = [back, conversation].flatMap(({ id, messages }) => [id, ...messages.map((each) => each.id)]);
  assert.equal(new Set(ids).size, 6);
  const bare = ({ id, messages, ...rest }) => ({ ...rest, messages: messages.map(({ id: own, ...each }) => each) });
  assert.deepEqual(bare(back), bare(conversation));
});

test("a file without what only some have is taken", () => {
  const { file } = exported();
  for (const run of file.messages[1].runs) Object.assign(run, { trace: null, timings: null, usage: null });
  delete file.updated;
  const back = readExport(JSON.stringify(file));
  assert.equal(back.messages[1].runs[0].trace.length, 0);
  assert.equal(back.messages[1].runs[0].text, "one two three four");
});

test("an answer that had not ended is an interrupted one", () => {
  const { file } = exported();
  file.messages[1].runs = [{ ...file.messages[1].runs[0], status: "streaming" }];
  assert.equal(readExport(JSON.stringify(file)).messages[1].runs[0].status, "interrupted");
});

test("another file is told what it is not", () => {
  assert.equal(refusal("# A conversation"), "It is not JSON.");
  for (const text of ["7", "null", "[]", "{}", '{"format": "other", "version": 1}']) {
    assert.match(refusal(text), /^It holds no conversation: “Export” and “JSON” write/);
  }
  assert.equal(refusal(null), "It is larger than 32 MiB.");
  const { file } = exported();
  assert.match(refusal(JSON.stringify({ ...file, version: 2 })), /^This page reads version 1/);
});

// What to break in the first run, and what is said of it.
const BROKEN = [
  [(file) => { file.messages = {}; }, "the messages"],
  [(file) => { file.title = 7; }, "the title"],
  [(file) => { file.system = ["x"]; }, "the system prompt"],
  [(file) => { file.messages[0] = null; }, "message 1"],
  [(file) => { file.messages[0].text = { html: "x" }; }, "message 1, its text"],
  [(file) => { file.messages[0].role = "system"; }, "message 1, its role"],
  [(file) => { file.messages[1].runs = []; }, "message 2, its runs"],
  [(file) => { file.messages[1].compare = "never"; }, "message 2, how it was compared"],
  [(file, run) => { run.text = null; }, "message 2, its text"],
  [(file, run) => { run.seed = 1.5; }, "message 2, its seed"],
  [(file, run) => { run.timings.tau = "3"; }, "message 2, tau"],
  [(file, run) => { run.timings.drafter = null; }, "message 2, drafter"],
  [(file, run) => { run.usage.output_tokens = -1; }, "message 2, output_tokens"],
  [(file, run) => { run.error = { code: "x", message: {} }; }, "message 2, its error"],
  [(file, run) => { run.trace.lengths.pop(); }, "message 2, its tokens"],
  [(file, run) => { run.trace.lengths[0] = 1e6; }, "message 2, its tokens"],
  [(file, run) => { run.trace.sources[0] = 9; }, "message 2, its tokens"],
  [(file, run) => { run.trace.names[0] = {}; }, "message 2, its tokens"],
  [(file, run) => { run.trace.steps[0].pop(); }, "message 2, its tokens"],
  [(file, run) => { run.trace.ms[0] = null; }, "message 2, its tokens"],
];

test("a damaged file is told where", () => {
  for (const [damage, where] of BROKEN) {
    const { file } = exported();
    file.messages[1].runs.pop();
    damage(file, file.messages[1].runs?.[0]);
    assert.equal(refusal(JSON.stringify(file)), `It is damaged: ${where} cannot be read.`);
  }
});
