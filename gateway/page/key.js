// The API key of this tab. Kept until the tab is closed, sent to this gateway only.

const NAME = "outpace.key";
const PROTOCOL = "openai-insecure-api-key.";
// What a WebSocket's subprotocol may be made of: a browser can send no other key.
const SENDABLE = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/;

export class Key {
  constructor(storage) {
    this.storage = storage;
  }

  get value() {
    return this.storage.getItem(NAME);
  }

  set value(key) {
    if (key) this.storage.setItem(NAME, key);
    else this.storage.removeItem(NAME);
  }

  headers() {
    return this.value ? { Authorization: `Bearer ${this.value}` } : {};
  }

  // Browsers set no headers on a WebSocket: the key goes with the names that it offers.
  protocols() {
    return this.value ? ["realtime", PROTOCOL + this.value] : [];
  }
}

// What is wrong with a key, null where a browser can send it.
export function keyProblem(key) {
  if (key === "") return "Enter a key.";
  if (SENDABLE.test(key)) return null;
  return "This key has characters that a browser cannot send over a WebSocket.";
}
