// The API key of this tab. Kept until the tab is closed, sent to this gateway only.

const NAME = "outpace.key";
const PROTOCOL = "openai-insecure-api-key.";
const ENCODED_PROTOCOL = "outpace-api-key-base64url.";
// What a WebSocket's subprotocol may be made of: other keys are sent encoded.
const SENDABLE = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/;

const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;

export class Key {
  constructor(storage) {
    this.storage = storage;
  }

  get value() {
    return this.storage.getItem(NAME);
  }

  set value(key) {
    if (key) this.storage.setItem(NAME, key.trim());
    else this.storage.removeItem(NAME);
  }

  headers() {
    return this.value ? { Authorization: `Bearer ${asBytes(this.value)}` } : {};
  }

  // Browsers set no headers on a WebSocket: the key goes with the names that it offers.
  protocols() {
    if (!this.value) return [];
    const plain = SENDABLE.test(this.value);
    return ["realtime", plain ? PROTOCOL + this.value : ENCODED_PROTOCOL + base64url(this.value)];
  }
}

// What is wrong with a key, null where it may be one.
export function keyProblem(key) {
  if (key.trim() === "") return "Enter a key.";
  if (UNPRINTABLE.test(key)) return "This key has a character that cannot be printed: no key has one.";
  return null;
}

// A header is bytes, and a browser takes each of them as a character: those of UTF-8 here.
function asBytes(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

function base64url(text) {
  return btoa(asBytes(text)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
