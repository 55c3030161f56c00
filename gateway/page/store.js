// Conversations and settings, kept in the browser and nowhere else.
//
// Each conversation has an entry of its own and the index lists them. Where there is no room left
// the traces of tokens are given up first, of the oldest conversations before those of newer ones.

import { pack, unpack } from "./conversation.js";

const PREFIX = "outpace.";
const INDEX = `${PREFIX}index`;
const SETTINGS = `${PREFIX}settings`;

export class StoreFullError extends Error {}

export class Store {
  // `storage` is the browser's localStorage, or anything that works like it.
  constructor(storage) {
    this.storage = storage;
  }

  // { id, title, updated } of every conversation, the newest first.
  list() {
    const listed = this.#read(INDEX);
    return Array.isArray(listed) ? [...listed].sort((a, b) => b.updated - a.updated) : [];
  }

  // Null where it is not there, or is nothing that could be read.
  load(id) {
    const packed = this.#read(keyOf(id));
    if (!packed || !Array.isArray(packed.messages)) return null;
    try {
      return unpack(packed);
    } catch {
      return null;
    }
  }

  // Raises `StoreFullError` where not even the bare text fits.
  save(conversation) {
    const { id, title, updated } = conversation;
    this.#write(keyOf(id), pack(conversation), () => pack(conversation, false), id);
    const others = this.list().filter((each) => each.id !== id);
    this.#write(INDEX, [{ id, title, updated }, ...others]);
  }

  remove(id) {
    this.storage.removeItem(keyOf(id));
    this.#write(INDEX, this.list().filter((each) => each.id !== id));
  }

  settings() {
    const kept = this.#read(SETTINGS);
    return kept && typeof kept === "object" ? kept : {};
  }

  saveSettings(settings) {
    this.#write(SETTINGS, settings);
  }

  // Whether a change of this entry, made in another tab, is one of what is kept here.
  static isOurs(key) {
    return key === null || key.startsWith(PREFIX);
  }

  #read(key) {
    try {
      return JSON.parse(this.storage.getItem(key) ?? "null");
    } catch {
      return null;
    }
  }

  #write(key, value, smaller = null, id = null) {
    if (this.#fits(key, value)) return;
    for (const other of this.list().reverse()) {
      if (other.id === id) continue;
      const conversation = this.load(other.id);
      if (conversation) this.#fits(keyOf(other.id), pack(conversation, false));
      if (this.#fits(key, value)) return;
    }
    if (smaller !== null && this.#fits(key, smaller())) return;
    throw new StoreFullError("The browser has no room left for this conversation.");
  }

  #fits(key, value) {
    try {
      this.storage.setItem(key, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  }
}

// Works like localStorage where the browser gives none: until the page is closed.
export class MemoryStorage {
  #entries = new Map();

  getItem(key) {
    return this.#entries.get(key) ?? null;
  }

  setItem(key, value) {
    this.#entries.set(key, value);
  }

  removeItem(key) {
    this.#entries.delete(key);
  }
}

function keyOf(id) {
  return `${PREFIX}conversation.${id}`;
}
