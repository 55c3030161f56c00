// What a conversation is made of, and what of it the gateway is asked with.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  append, cutFrom, find, inputBefore, newConversation, pack, question, rename, reply, unpack,
} from "../../gateway/page/conversation.js";
import { newRun } from "../../gateway/page/run.js";
import { endedRun } from "./samples.mjs";

function talk() {
  const conversation = newConversation(1);
  const messages = [question("Hi"), reply([endedRun("Hello")], null), question("Why?"), reply([newRun({ seed: 1 })], null)];
  for (const message of messages) append(conversation, message, 2);
  return { conversation, messages };
}

test("the gateway is asked with everything before the answer", () => {
  const { conversation, messages } = talk();
  assert.deepEqual(inputBefore(conversation, messages[3].id), [
    { role: "user", content: "Hi" },
    { role: "assistant", content: "Hello" },
    { role: "user", content: "Why?" },
  ]);
  assert.deepEqual(inputBefore(conversation, messages[1].id), [{ role: "user", content: "Hi" }]);
});

test("answers without text are left out", () => {
  const { conversation, messages } = talk();
  append(conversation, question("And?"));
  const last = reply([newRun({ seed: 1 })], null);
  append(conversation, last);
  assert.deepEqual(inputBefore(conversation, last.id).map(({ role }) => role), ["user", "assistant", "user", "user"]);
  assert.equal(find(conversation, messages[2].id), messages[2]);
  assert.equal(find(conversation, "nothing"), null);
});

test("cutting takes a message and what follows", () => {
  const { conversation, messages } = talk();
  assert.deepEqual(cutFrom(conversation, messages[2].id), messages.slice(2));
  assert.deepEqual(conversation.messages, messages.slice(0, 2));
  assert.deepEqual(cutFrom(conversation, "nothing"), []);
});

test("the first question names the conversation, unless somebody did", () => {
  const { conversation } = talk();
  assert.equal(conversation.title, "Hi");
  const long = newConversation(1);
  append(long, question(`  A  question ${"x".repeat(100)}\nmore`));
  assert.equal(long.title.length, 60);
  assert.ok(long.title.startsWith("A question xxx") && long.title.endsWith("…"));
  const named = newConversation(1);
  rename(named, " Mine ");
  append(named, question("Hi"));
  assert.equal(named.title, "Mine");
  rename(named, " ");
  assert.equal(named.title, "New conversation");
});

test("what is packed comes back", () => {
  const { conversation } = talk();
  const back = unpack(JSON.parse(JSON.stringify(pack(conversation))));
  assert.equal(back.messages[3].runs[0].status, "interrupted");
  back.messages[3].runs[0].status = "waiting";
  assert.deepEqual(back, conversation);
});

test("ids are told apart", () => {
  const ids = new Set(Array.from({ length: 1000 }, () => question("x").id));
  assert.equal(ids.size, 1000);
});
