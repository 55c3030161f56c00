// The socket's lanes, what is asked again, and how the page stays connected.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Asking } from "../../gateway/page/asking.js";
import { Connection } from "../../gateway/page/connection.js";
import { Gateway } from "../../gateway/page/gateway.js";
import { Link } from "../../gateway/page/link.js";
import { newRun } from "../../gateway/page/run.js";

class FakeSocket {
  constructor() {
    this.readyState = 0;
    this.sent = [];
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  accept() {
    this.readyState = 1;
    this.onopen();
  }

  close() {
    this.readyState = 3;
    this.onclose();
  }

  say(event) {
    this.onmessage({ data: JSON.stringify(event) });
  }
}

function connected() {
  const sockets = [];
  const connection = new Connection(() => {
    sockets.push(new FakeSocket());
    return sockets.at(-1);
  });
  return { connection, sockets };
}

async function opened() {
  const { connection, sockets } = connected();
  const opening = connection.open();
  sockets[0].accept();
  assert.equal(await opening, true);
  return { connection, sockets, socket: sockets[0] };
}

function hearer() {
  const heard = { events: [], ended: [] };
  return { heard, hears: { event: (event) => heard.events.push(event.type), ended: (how) => heard.ended.push(how) } };
}

const created = (lane, id) => ({ type: "response.created", stream_id: lane, response: { id } });
const delta = (lane, text) => ({ type: "response.output_text.delta", stream_id: lane, delta: text });
const done = (lane, status = "completed") => ({ type: "response.completed", stream_id: lane, response: { status } });
const settle = () => new Promise((resolve) => { setImmediate(resolve); });

test("questions have lanes of their own", async () => {
  const { connection, socket } = await opened();
  const [one, two] = [hearer(), hearer()];
  connection.ask({ input: "a" }, one.hears);
  connection.ask({ input: "b" }, two.hears);
  const [first, second] = socket.sent.map(({ stream_id: id }) => id);
  assert.notEqual(first, second);
  socket.say(delta(second, "x"));
  socket.say(done(first));
  socket.say(delta(first, "too late"));
  assert.deepEqual([one.heard.events, one.heard.ended], [["response.completed"], ["done"]]);
  assert.deepEqual([two.heard.events, two.heard.ended], [["response.output_text.delta"], []]);
});

test("what is asked before there is a connection is sent with it", async () => {
  const { connection, sockets } = connected();
  const { heard, hears } = hearer();
  connection.ask({ input: "a" }, hears);
  const opening = connection.open();
  sockets[0].accept();
  await opening;
  assert.deepEqual(sockets[0].sent.map(({ input }) => input), ["a"]);
  sockets[0].close();
  assert.deepEqual(heard.ended, ["lost"]);
  assert.equal(connection.isOpen, false);
});

test("a connection that is refused loses nothing that was not sent", async () => {
  const { connection, sockets } = connected();
  const { heard, hears } = hearer();
  connection.ask({ input: "a" }, hears);
  const opening = connection.open();
  sockets[0].close();
  assert.equal(await opening, false);
  assert.deepEqual(heard.ended, []);
});

test("cancelling waits for the response's id, and is said once", async () => {
  const { connection, socket } = await opened();
  const { heard, hears } = hearer();
  const lane = connection.ask({ input: "a" }, hears);
  connection.cancel(lane);
  connection.cancel(lane);
  assert.equal(socket.sent.length, 1);
  socket.say(created(lane.id, "resp_1"));
  assert.deepEqual(socket.sent[1], { type: "response.cancel", response_id: "resp_1" });
  socket.say(done(lane.id, "cancelled"));
  assert.deepEqual([heard.ended, socket.sent.length], [["done"], 2]);
});

test("what was never sent is dropped", () => {
  const { connection } = connected();
  const { heard, hears } = hearer();
  connection.cancel(connection.ask({ input: "a" }, hears));
  assert.deepEqual(heard.ended, ["dropped"]);
});

function asked(connection, runs, compare = null) {
  return new Asking({
    connection,
    message: { runs, compare },
    bodyOf: ({ seed, plain }) => ({ seed, plain }),
    changed: () => {},
  });
}

test("two runs are asked one after another, or at once", async () => {
  for (const [compare, atFirst] of [["one after another", 1], ["at once", 2]]) {
    const { connection, socket } = await opened();
    const runs = [newRun({ seed: 7 }), newRun({ seed: 7, plain: true })];
    const answering = asked(connection, runs, compare).answer();
    assert.equal(socket.sent.length, atFirst);
    socket.say(done("page-1"));
    await settle();
    assert.deepEqual(socket.sent.map(({ plain, seed }) => [plain, seed]), [[false, 7], [true, 7]]);
    socket.say(done("page-2"));
    await answering;
    assert.deepEqual(runs.map(({ status }) => status), ["completed", "completed"]);
  }
});

test("a lost answer is asked again with its seed, and what was read stays", async () => {
  const { connection, sockets, socket } = await opened();
  const run = newRun({ seed: 7 });
  const answering = asked(connection, [run]).answer();
  socket.say(delta("page-1", "one two"));
  socket.close();
  assert.deepEqual([run.status, run.text], ["lost", "one two"]);
  await settle();
  const opening = connection.open();
  sockets[1].accept();
  await opening;
  assert.equal(sockets[1].sent[0].seed, 7);
  sockets[1].say(delta("page-2", "one"));
  assert.deepEqual([run.status, run.text], ["lost", "one two"]);
  sockets[1].say(delta("page-2", " two three"));
  assert.deepEqual([run.status, run.text], ["streaming", "one two three"]);
  sockets[1].say(done("page-2"));
  await answering;
  assert.equal(run.status, "completed");
});

test("an answer that is lost each time is given up", async () => {
  const { connection, sockets } = connected();
  const run = newRun({ seed: 7 });
  const answering = asked(connection, [run]).answer();
  for (let tries = 0; tries < 3; tries += 1) {
    const opening = connection.open();
    sockets.at(-1).accept();
    await opening;
    sockets.at(-1).close();
    await settle();
  }
  await answering;
  assert.equal(run.status, "interrupted");
});

test("stopping cancels what runs, and what was to follow", async () => {
  const { connection, socket } = await opened();
  const runs = [newRun({ seed: 7 }), newRun({ seed: 7, plain: true })];
  const asking = asked(connection, runs, "one after another");
  const answering = asking.answer();
  socket.say(created("page-1", "resp_1"));
  asking.stop();
  assert.equal(socket.sent.at(-1).type, "response.cancel");
  socket.say(done("page-1", "cancelled"));
  await answering;
  assert.deepEqual(runs.map(({ status }) => status), ["cancelled", "cancelled"]);
  assert.equal(socket.sent.length, 2);
});

test("stopping while there is no connection ends the question", async () => {
  const { connection } = connected();
  const run = newRun({ seed: 7 });
  const asking = asked(connection, [run]);
  const answering = asking.answer();
  asking.stop();
  await answering;
  assert.equal(run.status, "cancelled");
});

const ready = { state: "ready", status: {}, models: [] };

function linked(looks, opens, askKey = async () => true) {
  const changes = [];
  const link = new Link({
    gateway: { look: async () => looks.shift() },
    connection: { open: async () => opens.shift(), closed: Promise.resolve() },
    changed: (state) => changes.push(state),
    askKey,
    pause: async () => {},
  });
  return { link, changes };
}

test("the page connects, and says how that goes", async () => {
  const { link, changes } = linked([ready], [true]);
  assert.equal(await link.attempt(), "closed");
  assert.deepEqual(changes, ["ready", "open"]);
});

test("a gateway that loads, drains or is away is looked at again", async () => {
  for (const [state, how] of [["loading", "early"], ["draining", "failed"], ["unreachable", "failed"]]) {
    const { link, changes } = linked([{ state }], []);
    assert.equal(await link.attempt(), how);
    assert.deepEqual(changes, [state]);
  }
  const { link } = linked([ready], [false]);
  assert.equal(await link.attempt(), "failed");
});

test("a key is asked for where one is needed, until one is right or nobody gives one", async () => {
  let given = 0;
  const asks = async () => {
    given += 1;
    return given < 4;
  };
  const first = linked([{ state: "key" }, { state: "key" }, ready], [true], asks);
  assert.equal(await first.link.attempt(), "closed");
  assert.equal(given, 2);
  given = 3;
  const second = linked([{ state: "key" }], [], asks);
  assert.equal(await second.link.attempt(), "refused");
});

test("a lost connection begins anew", async () => {
  const { link, changes } = linked([ready, ready], [true]);
  let looks = 0;
  link.gateway.look = async () => {
    looks += 1;
    return looks < 3 ? ready : new Promise(() => {});
  };
  link.keep();
  for (let turn = 0; turn < 20; turn += 1) await settle();
  assert.deepEqual(changes.slice(0, 4), ["ready", "open", "lost", "ready"]);
});

test("the gateway says whether it may be used", async () => {
  const answers = { 200: { data: [] }, 401: { error: {} }, 503: { error: { code: "loading" } }, 500: { error: { message: "no" } } };
  const looked = async (code, error = null) => {
    const key = { headers: () => ({ Authorization: "Bearer k" }) };
    const gateway = new Gateway("http://host.example/", key, async (url, { headers }) => {
      if (error) throw error;
      assert.ok(url.href.startsWith("http://host.example/v1/"));
      assert.equal(headers.Authorization, "Bearer k");
      return { ok: code === 200, status: code, json: async () => answers[code] };
    });
    return gateway.look();
  };
  assert.equal((await looked(200)).state, "ready");
  assert.equal((await looked(401)).state, "key");
  assert.equal((await looked(503)).state, "loading");
  assert.deepEqual(await looked(500), { state: "unreachable", message: "no" });
  assert.equal((await looked(200, new TypeError("network"))).state, "unreachable");
});
