// The AI SDK's OpenAI-compatible provider on a gateway. Prints what it got as JSON.
//
// run_ai_sdk.js BASE MODEL KEY FULL; a prompt of FULL is turned away.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [base, model, key, full] = process.argv.slice(2);

function provider(apiKey = key) {
  return createOpenAICompatible({ name: "outpace", baseURL: base, apiKey, includeUsage: true });
}

async function failure(work) {
  try {
    await work();
  } catch (error) {
    return { kind: error.name, status: error.statusCode ?? null, message: error.message };
  }
  return null;
}

async function streamed(options) {
  const result = streamText({ maxRetries: 0, ...options, onError: () => {} });
  const deltas = [];
  for await (const delta of result.textStream) deltas.push(delta);
  return { deltas, finish: await result.finishReason, usage: await result.usage };
}

async function talk(kind) {
  const ask = (options, as = kind) => generateText({ model: as, maxRetries: 0, ...options });
  const first = await ask({ system: "Be brief.", prompt: "Hi" });
  const second = await ask({
    messages: [
      { role: "user", content: "Hi" },
      ...first.response.messages,
      { role: "user", content: "And?" },
    ],
  });
  const limited = await ask({ prompt: "Hi", maxOutputTokens: 5, temperature: 0 });
  return {
    texts: [first.text, second.text],
    usage: first.usage,
    finish: [first.finishReason, limited.finishReason],
    limited: limited.text,
    stopped: (await ask({ prompt: "Hi", stopSequences: [","] })).text,
    streamed: await streamed({ model: kind, prompt: "Hi" }),
  };
}

async function errors() {
  const ask = (as, prompt) => failure(() => generateText({ model: as, prompt, maxRetries: 0 }));
  return {
    model: await ask(provider().chatModel("gpt-4"), "Hi"),
    full: await ask(provider().chatModel(model), full),
    key: await ask(provider("wrong").chatModel(model), "Hi"),
  };
}

// Leaves in mid-stream: what the engine does about it is looked at from outside.
async function leave() {
  const leaving = new AbortController();
  const result = streamText({
    model: provider().chatModel(model),
    prompt: "slowly",
    maxRetries: 0,
    abortSignal: leaving.signal,
    onError: () => {},
  });
  let seen = 0;
  for await (const _ of result.textStream) {
    if (++seen === 2) leaving.abort();
  }
  return { seen };
}

console.log(
  JSON.stringify({
    chat: await talk(provider().chatModel(model)),
    text: await talk(provider().completionModel(model)),
    errors: await errors(),
    left: await leave(),
  }),
);
