// Conversations in a storage that may be full, empty or full of somebody else's things.

import assert from "node:assert/strict";
import { test } from "node:test";

import { append, newConversation, pack, question, reply } from "../../gateway/page/conversation.js";
import { MemoryStorage, Store, StoreFullError } from "../../gateway/page/store.js";
import { Trace } from "../../gateway/page/trace.js";
import { endedRun, speculation } from "./samples.mjs";

// Holds at most so many characters, as a browser does.
class SmallStorage extends MemoryStorage {
  constructor(most) {
    super();
    this.most = most;
    this.sizes = new Map();
  }

  setItem(key, value) {
    const others = [...this.sizes].reduce((sum, [name, size]) => sum + (name === key ? 0 : size), 0);
    if (others + value.length > this.most) throw new DOMException("full", "QuotaExceededError");
    this.sizes.set(key, value.length);
    super.setItem(key, value);
  }

  removeItem(key) {
    this.sizes.delete(key);
    super.removeItem(key);
  }
}

function talk(text, now) {
  const conversation = newConversation(now);
  append(conversation, question(text), now);
  append(conversation, reply([endedRun("one two three four")], null), now);
  return conversation;
}

// With an answer of 200 tokens.
function longTalk(text, now) {
  const conversation = talk(text, now);
  const [run] = conversation.messages[1].runs;
  run.trace = new Trace();
  run.trace.add(speculation(Array.from({ length: 200 }, (_, index) => ["ab", "ngram", index, index])));
  run.text = "ab".repeat(200);
  return conversation;
}

test("what is saved is listed, the newest first, and comes back", () => {
  const store = new Store(new MemoryStorage());
  const [older, newer] = [talk("first", 1), talk("second", 2)];
  store.save(newer);
  store.save(older);
  assert.deepEqual(store.list().map(({ title }) => title), ["second", "first"]);
  assert.deepEqual(store.load(older.id), older);
  store.remove(older.id);
  assert.equal(store.load(older.id), null);
  assert.deepEqual(store.list().map(({ id }) => id), [newer.id]);
});

test("saving again replaces", () => {
  const store = new Store(new MemoryStorage());
  const conversation = talk("first", 1);
  store.save(conversation);
  append(conversation, question("more"), 5);
  store.save(conversation);
  assert.equal(store.list().length, 1);
  assert.equal(store.load(conversation.id).messages.length, 3);
});

test("where there is no room the oldest traces go first, and no text does", () => {
  const kept = ["first", "second", "third", "fourth"].map((text, index) => longTalk(text, index));
  const entry = JSON.stringify(pack(kept[0])).length;
  const store = new Store(new SmallStorage(Math.round(3.3 * entry)));
  for (const conversation of kept) store.save(conversation);
  const answers = kept.map(({ id }) => store.load(id).messages[1].runs[0]);
  const traced = answers.map(({ trace }) => trace.length);
  assert.deepEqual([traced[0], traced[2], traced[3]], [0, 200, 200]);
  assert.deepEqual(answers.map(({ text }) => text.length), [400, 400, 400, 400]);
});

test("a conversation that cannot be kept at all is an error", () => {
  const store = new Store(new SmallStorage(100));
  assert.throws(() => store.save(talk("too long".repeat(50), 1)), StoreFullError);
});

test("what cannot be read is not there", () => {
  const storage = new MemoryStorage();
  storage.setItem("outpace.index", "{broken");
  storage.setItem("outpace.settings", "7");
  storage.setItem("outpace.conversation.a", '{"messages": [{"runs": [null]}]}');
  storage.setItem("outpace.conversation.b", '"text"');
  const store = new Store(storage);
  assert.deepEqual(store.list(), []);
  assert.deepEqual(store.settings(), {});
  assert.equal(store.load("a"), null);
  assert.equal(store.load("b"), null);
  assert.equal(store.load("c"), null);
});

test("settings are kept", () => {
  const store = new Store(new MemoryStorage());
  store.saveSettings({ colours: false });
  assert.deepEqual(store.settings(), { colours: false });
});

test("only what is ours concerns us", () => {
  assert.ok(Store.isOurs("outpace.index"));
  assert.ok(Store.isOurs(null));
  assert.ok(!Store.isOurs("another"));
});
