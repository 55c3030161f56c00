// A conversation: what was asked and what was answered, in order.
//
// Messages are { id, role: "user", text } and { id, role: "assistant", compare, runs }. The first
// run is the answer; the second, where there is one, is its comparison without speculation.

import { packRun, unpackRun } from "./run.js";

const LONGEST_TITLE = 60;
const UNTITLED = "New conversation";

export function newConversation(now = Date.now()) {
  return { id: freshId(), title: UNTITLED, named: false, updated: now, system: "", messages: [] };
}

export function freshId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function question(text) {
  return { id: freshId(), role: "user", text };
}

export function reply(runs, compare) {
  return { id: freshId(), role: "assistant", compare, runs };
}

// Append `message`; the first question names the conversation.
export function append(conversation, message, now = Date.now()) {
  conversation.messages.push(message);
  conversation.updated = now;
  if (!conversation.named && message.role === "user" && conversation.title === UNTITLED) {
    conversation.title = titleOf(message.text);
  }
}

export function rename(conversation, title) {
  conversation.title = title.trim() || UNTITLED;
  conversation.named = title.trim() !== "";
}

// Take `id` and everything behind it away; what was taken.
export function cutFrom(conversation, id) {
  const at = conversation.messages.findIndex((message) => message.id === id);
  return at < 0 ? [] : conversation.messages.splice(at);
}

export function find(conversation, id) {
  return conversation.messages.find((message) => message.id === id) ?? null;
}

// What the gateway is to read: everything before the message `id`, empty answers left out.
export function inputBefore(conversation, id) {
  const at = conversation.messages.findIndex((message) => message.id === id);
  const before = at < 0 ? conversation.messages : conversation.messages.slice(0, at);
  return before
    .map((message) => ({ role: message.role, content: message.text ?? message.runs[0].text }))
    .filter((item) => item.role === "user" || item.content !== "");
}

export function pack(conversation, traced = true) {
  const messages = conversation.messages.map((message) => (
    message.runs ? { ...message, runs: message.runs.map((run) => packRun(run, traced)) } : message
  ));
  return { ...conversation, messages };
}

export function unpack(packed) {
  const messages = packed.messages.map((message) => (
    message.runs ? { ...message, runs: message.runs.map(unpackRun) } : message
  ));
  return { ...newConversation(packed.updated), ...packed, messages };
}

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > LONGEST_TITLE ? `${line.slice(0, LONGEST_TITLE - 1).trimEnd()}…` : line;
}
