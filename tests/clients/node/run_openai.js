// openai-node on a gateway, over HTTP and over its Responses socket. Prints what it got as JSON.
//
// run_openai.js BASE MODEL KEY FULL; a prompt of FULL is turned away.

import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const [base, model, key, full] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });

async function failure(work) {
  try {
    await work();
  } catch (error) {
    return {
      kind: error.constructor.name,
      status: error.status ?? null,
      code: error.code ?? null,
      param: error.param ?? null,
    };
  }
  return null;
}

async function gathered(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return events;
}

async function responses() {
  const create = (fields) => client.responses.create({ model, input: "Hi", ...fields });
  const first = await create({ instructions: "Be brief." });
  const second = await create({ input: "And?", previous_response_id: first.id });
  const items = [{ role: "user", content: "Hi" }, ...first.output, { role: "user", content: "?" }];
  const third = await create({ input: items });
  const scored = await create({
    include: ["message.output_text.logprobs"],
    top_logprobs: 2,
  });
  const helped = client.responses.stream({ model, input: "Hi" });
  return {
    texts: [first, second, third].map((response) => response.output_text),
    streamed: await gathered(create({ stream: true })),
    helped: (await helped.finalResponse()).output_text,
    logprobs: scored.output[0].content[0].logprobs.map((entry) => entry.logprob),
    stopped: await create({ stop: [","] }),
    errors: {
      model: await failure(() => create({ model: "gpt-4" })),
      temperature: await failure(() => create({ temperature: 9 })),
      lost: await failure(() => create({ previous_response_id: "resp_none" })),
      full: await failure(() => create({ input: full })),
      key: await failure(() =>
        new OpenAI({ baseURL: base, apiKey: "wrong", maxRetries: 0 }).models.list(),
      ),
    },
  };
}

async function chat() {
  const messages = [{ role: "user", content: "Hi" }];
  const create = (fields) => client.chat.completions.create({ model, messages, ...fields });
  const first = await create({});
  const said = [...messages, first.choices[0].message, { role: "user", content: "?" }];
  const several = await create({ n: 3 });
  const scored = await create({ logprobs: true, top_logprobs: 2 });
  return {
    texts: [first, await create({ messages: said })].map((each) => each.choices[0].message.content),
    streamed: await gathered(create({ stream: true, stream_options: { include_usage: true } })),
    several: several.choices.map((choice) => choice.index),
    logprobs: scored.choices[0].logprobs.content.map((entry) => entry.logprob),
    stopped: await create({ stop: "," }),
    errors: {
      model: await failure(() => create({ model: "gpt-4" })),
      full: await failure(() => create({ messages: [{ role: "user", content: full }] })),
    },
  };
}

async function text() {
  const create = (fields) => client.completions.create({ model, prompt: "Hi", ...fields });
  return {
    texts: [(await create({})).choices[0].text],
    streamed: await gathered(create({ stream: true })),
    several: (await create({ n: 2, prompt: ["a", "b"] })).choices.map((choice) => choice.index),
  };
}

// The events of one turn on the socket, to its last or to an error.
function turn(socket, fields) {
  const events = [];
  const ended = new Promise((resolve) => {
    const heard = (event) => {
      events.push(event);
      const last = ["response.completed", "response.incomplete", "response.failed", "error"];
      if (!last.includes(event.type)) return;
      socket.off("event", heard);
      resolve(events);
    };
    socket.on("event", heard);
  });
  socket.send({ type: "response.create", model, ...fields });
  return ended;
}

async function socket() {
  const connection = new ResponsesWS(client);
  const errors = [];
  connection.on("error", (error) => errors.push(error.message));
  const first = await turn(connection, { input: "Hi", store: false });
  const id = first.at(-1).response.id;
  const second = await turn(connection, { input: "And?", store: false, previous_response_id: id });
  const lost = await turn(connection, { input: "Hi", previous_response_id: "resp_none" });
  const turned = await turn(connection, { input: full });
  connection.close();
  return { first, second, lost, turned, heard: errors.length };
}

// Leaves in mid-stream: what the engine does about it is looked at from outside.
async function leave() {
  const stream = await client.responses.create({ model, input: "slowly", stream: true });
  let seen = 0;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta" && ++seen === 2) break;
  }
  const connection = new ResponsesWS(client);
  connection.on("error", () => {});
  await new Promise((resolve) => {
    connection.on("response.output_text.delta", resolve);
    connection.send({ type: "response.create", model, input: "slowly" });
  });
  connection.close();
  return { seen };
}

async function models() {
  const listed = [];
  for await (const each of client.models.list()) listed.push(each);
  return { listed };
}

const parts = { responses, chat, text, socket, leave, models };
const found = {};
for (const [name, part] of Object.entries(parts)) found[name] = await part();
console.log(JSON.stringify(found));
