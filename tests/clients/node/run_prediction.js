// openai-node with predicted outputs, unmodified. Prints what it got as JSON.
//
// run_prediction.js BASE MODEL KEY

import OpenAI from "openai";

const [base, model, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: "Hi" }];
const text = "Hello, world";

function create(prediction, fields = {}) {
  return client.chat.completions.create({ model, messages, prediction, ...fields });
}

const whole = await create({ type: "content", content: text });
const parts = await create({ type: "content", content: [{ type: "text", text }] });
const stream = await create(
  { type: "content", content: text },
  { stream: true, stream_options: { include_usage: true } },
);
let last = null;
for await (const chunk of stream) last = chunk;
let refused = null;
try {
  await create({ type: "other", content: text });
} catch (error) {
  refused = { status: error.status, code: error.code, param: error.param };
}
console.log(
  JSON.stringify({
    texts: [whole, parts].map((answer) => answer.choices[0].message.content),
    usages: [whole, parts, last].map((answer) => answer.usage.completion_tokens_details),
    refused,
  }),
);
