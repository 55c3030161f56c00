// How a key gets from the page to the gateway.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Key, keyProblem } from "../../gateway/page/key.js";
import { MemoryStorage } from "../../gateway/page/store.js";

function keyOf(value) {
  const key = new Key(new MemoryStorage());
  key.value = value;
  return key;
}

test("a key goes as a header and as a subprotocol, and is gone with the tab", () => {
  const storage = new MemoryStorage();
  const key = new Key(storage);
  assert.deepEqual([key.headers(), key.protocols()], [{}, []]);
  key.value = "sk-1";
  assert.deepEqual(key.headers(), { Authorization: "Bearer sk-1" });
  assert.deepEqual(key.protocols(), ["realtime", "openai-insecure-api-key.sk-1"]);
  assert.equal(new Key(storage).value, "sk-1");
  key.value = null;
  assert.equal(new Key(storage).value, null);
});

test("a key that a subprotocol can hold is sent as it is", () => {
  const key = keyOf(" sk-a.b_c~1 ");
  assert.deepEqual(key.headers(), { Authorization: "Bearer sk-a.b_c~1" });
  assert.deepEqual(key.protocols(), ["realtime", "openai-insecure-api-key.sk-a.b_c~1"]);
});

test("any other is sent as base64url of its UTF-8", () => {
  for (const value of ["a/b=", "schlüssel (neu)", "☃:\"@,;", "ключ", "?>?>?>"]) {
    const key = keyOf(value);
    const [realtime, protocol] = key.protocols();
    assert.equal(realtime, "realtime");
    assert.match(protocol, /^outpace-api-key-base64url\.[A-Za-z0-9_-]+$/);
    const encoded = protocol.slice(protocol.indexOf(".") + 1);
    assert.equal(Buffer.from(encoded, "base64url").toString("utf8"), value);
    // Each character of a header is a byte.
    const header = key.headers().Authorization;
    assert.equal(Buffer.from(header, "latin1").toString("utf8"), `Bearer ${value}`);
  }
});

test("what can be no key is told so", () => {
  for (const key of ["", "  "]) assert.equal(keyProblem(key), "Enter a key.");
  for (const key of ["a\u0007b", "a\u200bb", "a\nb"]) assert.match(keyProblem(key), /cannot be printed/);
  for (const key of ["right", "a/b=", "ключ"]) assert.equal(keyProblem(key), null);
});
