// Conversations as files.

import { describeDrafter } from "./sources.js";

export const FORMAT = "outpace-conversation";
export const VERSION = 1;

// For people. The figures of an answer stand below it.
export function asMarkdown(conversation) {
  const parts = [`# ${conversation.title}`];
  if (conversation.system.trim() !== "") parts.push(`> ${quoted(conversation.system)}`);
  for (const message of conversation.messages) {
    if (message.role === "user") parts.push(`## Question\n\n${message.text}`);
    else parts.push(`## Answer\n\n${message.runs[0].text}`, ...figures(message.runs[0]));
  }
  return `${parts.join("\n\n")}\n`;
}

// For programs, and to be imported: everything that is kept, tokens and rounds included.
export function asJson(packed) {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, ...packed }, null, 1)}\n`;
}

// A file's name from a conversation's title.
export function fileName(title, ending) {
  const plain = title.normalize("NFKD").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "");
  return `${plain.toLowerCase().slice(0, 60) || "conversation"}.${ending}`;
}

function figures({ timings, usage, seed }) {
  if (!timings) return [];
  const said = [`seed ${seed}`, `${usage?.output_tokens ?? 0} tokens`];
  if (timings.drafter !== "off") said.push(describeDrafter(timings.drafter));
  if (timings.tau !== null) said.push(`tau ${timings.tau.toFixed(2)}`);
  if (timings.alpha !== null) said.push(`alpha ${timings.alpha.toFixed(2)}`);
  if (timings.tpot_ms !== null) said.push(`${timings.tpot_ms.toFixed(2)} ms per token`);
  return [`*${said.join(", ")}*`];
}

function quoted(text) {
  return text.trim().split("\n").join("\n> ");
}
