// openai-node over HTTP and over its Responses socket, for the matrix.
//
// matrix_openai.js BASE MODEL KEY FULL. Whatever came over the wire is in `events` and `chunks`.

import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";

import { DESCRIPTION, SLOWLY, TOKENS, TOP, WET, Weather } from "./matrix.js";
import { cellsOf, failure, freeAgain, gathered } from "./matrix.js";

const [base, model, key, full] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const stranger = new OpenAI({ baseURL: base, apiKey: "wrong", maxRetries: 0 });
const events = [];
const socketEvents = [];
const chunks = [];
const options = { name: "get_weather", description: DESCRIPTION, parameters: Weather };
const flatTool = zodResponsesFunction(options);
const chatTool = zodFunction(options);
const format = zodTextFormat(Weather, "weather");
const LAST = ["response.completed", "response.incomplete", "response.failed", "error"];

async function responses(input, fields = {}) {
  const asked = { model, input, max_output_tokens: TOKENS, ...fields };
  if (!fields.stream) return client.responses.create(asked);
  const heard = await gathered(client.responses.create(asked));
  events.push(...heard);
  return heard;
}

async function chat(said, fields = {}) {
  const messages = typeof said === "string" ? [{ role: "user", content: said }] : said;
  const asked = { model, messages, max_tokens: TOKENS, ...fields };
  return told(client.chat.completions.create(asked), fields);
}

async function completion(prompt, fields = {}) {
  return told(client.completions.create({ model, prompt, max_tokens: TOKENS, ...fields }), fields);
}

async function told(asked, fields) {
  const answer = fields.stream ? await gathered(asked) : await asked;
  chunks.push(...(fields.stream ? answer : [answer]));
  return answer;
}

// The events of one turn on a socket, to its last or to an error.
function turn(socket, input, fields = {}) {
  const heard = [];
  const ended = new Promise((resolve) => {
    const listen = (event) => {
      heard.push(event);
      if (!LAST.includes(event.type)) return;
      socket.off("event", listen);
      socketEvents.push(...heard);
      resolve(heard);
    };
    socket.on("event", listen);
  });
  socket.send({ type: "response.create", model, input, max_output_tokens: TOKENS, ...fields });
  return ended;
}

function connected(as = client) {
  const socket = new ResponsesWS(as);
  // Without a listener it would throw.
  socket.on("error", () => {});
  return socket;
}

async function alone(input, fields = {}) {
  const socket = connected();
  const heard = await turn(socket, input, fields);
  socket.close();
  return heard;
}

const deltasOf = (heard) =>
  heard.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
const argumentsOf = (heard) =>
  heard
    .filter((event) => event.type === "response.function_call_arguments.delta")
    .map((event) => event.delta);
const contentOf = (heard) =>
  heard.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? ""));
const saidIn = (heard) =>
  heard
    .at(-1)
    .response.output.flatMap((item) => item.content.map((part) => part.text))
    .join("");
const entriesOf = (output) => output[0].content[0].logprobs.map((entry) => entry.logprob);

async function text() {
  const heard = await alone("text W");
  const pieces = await completion("text T", { stream: true });
  return {
    R: {
      whole: (await responses("text R")).output_text,
      deltas: deltasOf(await responses("text R", { stream: true })),
    },
    C: {
      whole: (await chat("text C")).choices[0].message.content,
      deltas: contentOf(await chat("text C", { stream: true })),
    },
    T: {
      whole: (await completion("text T")).choices[0].text,
      deltas: pieces.flatMap((chunk) => chunk.choices.map((choice) => choice.text)),
    },
    W: { whole: saidIn(heard), deltas: deltasOf(heard) },
  };
}

async function turns() {
  const and = { role: "user", content: "And?" };
  const first = await responses("turns R");
  const second = await responses("And?", { previous_response_id: first.id });
  const again = await responses([{ role: "user", content: "turns R" }, ...first.output, and]);
  const asked = { role: "user", content: "turns C" };
  const answered = (await chat([asked])).choices[0].message;
  const more = await chat([asked, answered, and]);
  const socket = connected();
  const begun = await turn(socket, "turns W", { store: false });
  const previous = begun.at(-1).response.id;
  const going = await turn(socket, "And?", { store: false, previous_response_id: previous });
  socket.close();
  return {
    R: { said: [first.output_text, second.output_text, again.output_text] },
    C: { said: [answered.content, more.choices[0].message.content] },
    W: { said: [saidIn(begun), saidIn(going)] },
  };
}

async function tools() {
  return { R: await toolsOfResponses(), C: await toolsOfChat(), W: await toolsOfSocket() };
}

async function toolsOfResponses() {
  const choice = { type: "function", name: "get_weather" };
  const asked = { tools: [flatTool], tool_choice: choice, max_output_tokens: 200 };
  const parsed = await client.responses.parse({ model, input: "tools R", ...asked });
  const [call] = parsed.output;
  const heard = await responses("tools R", { ...asked, stream: true });
  const result = { type: "function_call_output", call_id: call.call_id, output: WET };
  const answer = await responses([result], { previous_response_id: parsed.id, tools: [flatTool] });
  return {
    name: call.name,
    arguments: JSON.stringify(call.parsed_arguments),
    deltas: argumentsOf(heard),
    answer: answer.output_text,
  };
}

// Its runner calls the function and asks again, with `auto` then.
async function toolsOfChat() {
  const deltas = [];
  const called = [];
  const runner = client.chat.completions.runTools({
    model,
    messages: [{ role: "user", content: "tools C" }],
    tools: [zodFunction({ ...options, function: (made) => (called.push(made), WET) })],
    tool_choice: { type: "function", function: { name: "get_weather" } },
    max_tokens: 200,
    stream: true,
  });
  runner.on("chunk", (chunk) => {
    chunks.push(chunk);
    for (const choice of chunk.choices) {
      for (const each of choice.delta.tool_calls ?? []) {
        if (each.function?.arguments) deltas.push(each.function.arguments);
      }
    }
  });
  await runner.done();
  const calls = runner.messages.flatMap((message) => message.tool_calls ?? []);
  // It stops when the named function has been called.
  const answer = await chat(runner.messages, { tools: [chatTool] });
  return {
    name: calls[0].function.name,
    arguments: JSON.stringify(called[0]),
    deltas,
    answer: answer.choices[0].message.content,
  };
}

async function toolsOfSocket() {
  const socket = connected();
  const asked = { tools: [flatTool], tool_choice: "required", parallel_tool_calls: false };
  const heard = await turn(socket, "tools W", { ...asked, max_output_tokens: 200 });
  const [call] = heard.at(-1).response.output;
  const result = { type: "function_call_output", call_id: call.call_id, output: WET };
  const previous = heard.at(-1).response.id;
  const fields = { previous_response_id: previous, tools: [flatTool] };
  const answer = await turn(socket, [result], fields);
  socket.close();
  return {
    name: call.name,
    arguments: call.arguments,
    deltas: argumentsOf(heard),
    answer: saidIn(answer),
  };
}

async function schema() {
  const asked = { model, input: "schema R", text: { format }, max_output_tokens: 200 };
  const messages = [{ role: "user", content: "schema C" }];
  const response_format = zodResponseFormat(Weather, "weather");
  const parsed = await client.chat.completions.parse({
    model,
    messages,
    response_format,
    max_tokens: 200,
  });
  const heard = await alone("schema W", { text: { format }, max_output_tokens: 200 });
  return {
    R: { parsed: (await client.responses.parse(asked)).output_parsed },
    C: { parsed: parsed.choices[0].message.parsed },
    W: { parsed: JSON.parse(saidIn(heard)), deltas: deltasOf(heard) },
  };
}

async function logprobs() {
  const asked = { include: ["message.output_text.logprobs"], top_logprobs: TOP };
  const chatted = await chat("logprobs C", { logprobs: true, top_logprobs: TOP });
  const completed = await completion("logprobs T", { logprobs: TOP });
  const heard = await alone("logprobs W", asked);
  return {
    R: { logprobs: entriesOf((await responses("logprobs R", asked)).output) },
    C: { logprobs: chatted.choices[0].logprobs.content.map((entry) => entry.logprob) },
    T: { logprobs: completed.choices[0].logprobs.token_logprobs },
    W: { logprobs: entriesOf(heard.at(-1).response.output) },
  };
}

async function stop() {
  const whole = {
    R: (await responses("stop R")).output_text,
    C: (await chat("stop C")).choices[0].message.content,
    T: (await completion("stop T")).choices[0].text,
    W: saidIn(await alone("stop W")),
  };
  const mark = (way) => whole[way].slice(4, 7);
  const said = {
    R: (await responses("stop R", { stop: [mark("R")] })).output_text,
    C: (await chat("stop C", { stop: mark("C") })).choices[0].message.content,
    T: (await completion("stop T", { stop: mark("T") })).choices[0].text,
    W: saidIn(await alone("stop W", { stop: [mark("W")] })),
  };
  const cell = (way) => ({ whole: whole[way], stop: mark(way), said: said[way] });
  return { R: cell("R"), C: cell("C"), T: cell("T"), W: cell("W") };
}

async function n() {
  const asked = { n: 3, temperature: 1, seed: 5 };
  const whole = await chat("n C", asked);
  const streamed = ["", "", ""];
  for (const chunk of await chat("n C", { ...asked, stream: true })) {
    for (const choice of chunk.choices) streamed[choice.index] += choice.delta.content ?? "";
  }
  return {
    C: { texts: whole.choices.map((choice) => choice.message.content), streamed },
    T: { texts: (await completion("n T", asked)).choices.map((choice) => choice.text) },
  };
}

async function errors() {
  const found = {};
  for (const [way, ask] of Object.entries({ R: responses, C: chat, T: completion })) {
    found[way] = {
      model: await failure(() => ask("Hi", { model: "gpt-4" })),
      value: await failure(() => ask("Hi", { temperature: 9 })),
      full: await failure(() => ask(full)),
    };
  }
  found.R.key = await failure(() => stranger.models.retrieve(model));
  const refused = async (input, fields) => {
    const event = (await alone(input, fields)).at(-1);
    return { kinds: [event.type], code: event.error.code, message: event.error.message };
  };
  found.W = {
    model: await refused("Hi", { model: "gpt-4" }),
    value: await refused("Hi", { temperature: 9 }),
    full: await refused(full),
    key: await failure(
      () =>
        new Promise((resolve, reject) => {
          const socket = new ResponsesWS(stranger);
          socket.on("error", reject);
          socket.on("event", resolve);
        }),
    ),
  };
  return found;
}

async function cancel() {
  const leave = async (asked) => {
    const stream = await asked;
    let seen = 0;
    for await (const _ of stream) if (++seen === 6) break;
    return { closed: await freeAgain(base, key) };
  };
  const messages = [{ role: "user", content: `${SLOWLY} C` }];
  const found = {
    R: await leave(client.responses.create({ model, input: `${SLOWLY} R`, stream: true })),
    C: await leave(client.chat.completions.create({ model, messages, stream: true })),
    T: await leave(client.completions.create({ model, prompt: `${SLOWLY} T`, stream: true })),
  };
  const input = `${SLOWLY} in the background`;
  const begun = await client.responses.create({ model, input, background: true });
  found.R.status = (await client.responses.cancel(begun.id)).status;
  found.R.background = await freeAgain(base, key);
  const socket = connected();
  await new Promise((resolve) => {
    socket.on("response.output_text.delta", resolve);
    socket.send({ type: "response.create", model, input: `${SLOWLY} W` });
  });
  socket.close();
  found.W = { closed: await freeAgain(base, key) };
  return found;
}

const features = { text, turns, tools, schema, logprobs, stop, n, errors, cancel };
const cells = await cellsOf(features);
console.log(JSON.stringify({ cells, events, socketEvents, chunks }));
