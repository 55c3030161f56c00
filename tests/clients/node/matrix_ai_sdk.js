// The AI SDK's OpenAI-compatible provider, for the matrix.
//
// matrix_ai_sdk.js BASE MODEL KEY FULL.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";

import { DESCRIPTION, SLOWLY, TOKENS, WET, Weather } from "./matrix.js";
import { cellsOf, failure, freeAgain, gathered } from "./matrix.js";

const [base, model, key, full] = process.argv.slice(2);

function provider(apiKey = key) {
  return createOpenAICompatible({
    name: "outpace",
    baseURL: base,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  });
}

const kinds = { C: provider().chatModel(model), T: provider().completionModel(model) };
const common = { maxRetries: 0, maxOutputTokens: TOKENS };

async function text() {
  const of = async (way) => {
    const asked = { ...common, model: kinds[way], prompt: `text ${way}` };
    const { text: whole } = await generateText(asked);
    return { whole, deltas: await gathered(streamText(asked).textStream) };
  };
  return { C: await of("C"), T: await of("T") };
}

async function turns() {
  const asked = { role: "user", content: "turns C" };
  const first = await generateText({ ...common, model: kinds.C, messages: [asked] });
  const messages = [asked, ...first.response.messages, { role: "user", content: "And?" }];
  const second = await generateText({ ...common, model: kinds.C, messages });
  return { C: { said: [first.text, second.text] } };
}

// Two steps: the call, and what is said of its result.
async function tools() {
  const called = [];
  const weather = tool({
    description: DESCRIPTION,
    inputSchema: Weather,
    execute: async (made) => (called.push(made), WET),
  });
  const result = streamText({
    ...common,
    maxOutputTokens: 200,
    model: kinds.C,
    prompt: "tools C",
    tools: { get_weather: weather },
    toolChoice: { type: "tool", toolName: "get_weather" },
    prepareStep: ({ stepNumber }) => (stepNumber > 0 ? { toolChoice: "auto" } : {}),
    stopWhen: stepCountIs(2),
  });
  const parts = await gathered(result.fullStream);
  const deltas = parts.filter((part) => part.type === "tool-input-delta").map((part) => part.delta);
  const [first] = await result.steps;
  return {
    C: {
      name: first.toolCalls[0].toolName,
      arguments: JSON.stringify(called[0]),
      deltas,
      answer: await result.text,
    },
  };
}

async function schema() {
  const asked = { maxRetries: 0, maxOutputTokens: 200, model: kinds.C, schema: Weather };
  const { object } = await generateObject({ ...asked, prompt: "schema C" });
  const streamed = streamObject({ ...asked, prompt: "schema C" });
  const deltas = await gathered(streamed.textStream);
  return { C: { parsed: object, deltas } };
}

async function stop() {
  const of = async (way) => {
    const asked = { ...common, model: kinds[way], prompt: `stop ${way}` };
    const { text: whole } = await generateText(asked);
    const mark = whole.slice(4, 7);
    const cut = await generateText({ ...asked, stopSequences: [mark] });
    return { whole, stop: mark, said: cut.text };
  };
  return { C: await of("C"), T: await of("T") };
}

async function errors() {
  const of = async (as) => {
    const ask = (made, prompt, more = {}) =>
      failure(() => generateText({ ...common, model: made, prompt, ...more }));
    return {
      model: await ask(as(provider(), "gpt-4"), "Hi"),
      value: await ask(as(provider(), model), "Hi", { temperature: 9 }),
      full: await ask(as(provider(), model), full),
      key: await ask(as(provider("wrong"), model), "Hi"),
    };
  };
  return {
    C: await of((from, name) => from.chatModel(name)),
    T: await of((from, name) => from.completionModel(name)),
  };
}

async function cancel() {
  const of = async (way) => {
    const leaving = new AbortController();
    const result = streamText({
      model: kinds[way],
      prompt: `${SLOWLY} ${way}`,
      maxRetries: 0,
      abortSignal: leaving.signal,
      onError: () => {},
    });
    let seen = 0;
    for await (const _ of result.textStream) if (++seen === 3) leaving.abort();
    return { closed: await freeAgain(base, key) };
  };
  return { C: await of("C"), T: await of("T") };
}

// It tells of one answer alone and of no log-probabilities: it has neither `n` nor `logprobs`.
const features = { text, turns, tools, schema, stop, errors, cancel };
console.log(JSON.stringify({ cells: await cellsOf(features) }));
