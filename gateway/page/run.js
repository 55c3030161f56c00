// One answer as it comes in: what its events have said so far.
//
// `status` is one of: waiting (nobody has begun), reading (the prompt), streaming, lost (the
// connection is gone, it will be asked again); and at the end completed, length, cancelled,
// failed, interrupted (the connection was lost once too often).

import { Trace } from "./trace.js";

const ENDED = new Set(["completed", "length", "cancelled", "failed", "interrupted"]);
const LAST_EVENTS = new Set(["response.completed", "response.incomplete", "response.failed"]);

// `plain` runs have speculation switched off, whatever the settings say.
export function newRun({ seed, plain = false }) {
  return {
    plain,
    seed,
    status: "waiting",
    text: "",
    responseId: null,
    timings: null,
    usage: null,
    error: null,
    trace: new Trace(),
  };
}

export function hasEnded(run) {
  return ENDED.has(run.status);
}

// Take one event of the run's response.
export function hear(run, event) {
  if (event.type === "response.created") {
    run.responseId = event.response.id;
    run.status = "reading";
  } else if (event.type === "response.output_text.delta") {
    run.status = "streaming";
    run.text += event.delta;
    if (event.speculation?.texts) run.trace.add(event.speculation, event.logprobs);
  } else if (LAST_EVENTS.has(event.type)) {
    finish(run, event.response);
  } else if (event.type === "error") {
    run.status = "failed";
    run.error = { code: event.error.code, message: event.error.message };
  }
}

// What the conversation keeps; the trace only where there is room for it.
export function packRun(run, traced = true) {
  return { ...run, trace: traced ? run.trace.pack() : null };
}

// A run that was kept. One that was cut by the end of the page has been interrupted.
export function unpackRun(packed) {
  const run = { ...newRun({ seed: null }), ...packed, trace: Trace.unpack(packed.trace) };
  if (!hasEnded(run)) run.status = "interrupted";
  return run;
}

// Where two answers part, in characters; -1 where they are the same.
export function firstDifference(one, other) {
  if (one === other) return -1;
  const most = Math.min(one.length, other.length);
  for (let at = 0; at < most; at += 1) if (one[at] !== other[at]) return at;
  return most;
}

function finish(run, response) {
  const statuses = { completed: "completed", incomplete: "length", failed: "failed" };
  run.status = statuses[response.status] ?? "cancelled";
  run.timings = response.timings ?? null;
  run.usage = response.usage ?? null;
  if (response.error) run.error = { code: response.error.code, message: response.error.message };
}
