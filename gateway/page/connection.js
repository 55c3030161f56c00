// The WebSocket of `/v1/responses` and its lanes: each question is a lane of its own.

const OPEN = 1;

export class Connection {
  // `connect` makes a WebSocket.
  constructor(connect) {
    this.connect = connect;
    this.socket = null;
    this.lanes = new Map();
    this.made = 0;
  }

  get isOpen() {
    return this.socket?.readyState === OPEN;
  }

  // Whether it opened. What was asked meanwhile is sent then.
  open() {
    return new Promise((resolve) => {
      const socket = this.connect();
      this.socket = socket;
      this.closed = new Promise((over) => {
        socket.onopen = () => {
          for (const lane of this.lanes.values()) this.#send(lane);
          resolve(true);
        };
        socket.onmessage = (message) => this.#hear(JSON.parse(message.data));
        socket.onclose = () => {
          this.socket = null;
          this.#lose();
          resolve(false);
          over();
        };
      });
    });
  }

  // Ask `body`, now or as soon as there is a connection. `hears.event` gets every event,
  // `hears.ended` is called once: "done", "lost" (the connection is gone) or "dropped" (cancelled
  // before it was sent).
  ask(body, hears) {
    this.made += 1;
    const lane = { id: `page-${this.made}`, body, hears, sent: false, responseId: null, cancelled: false };
    this.lanes.set(lane.id, lane);
    if (this.isOpen) this.#send(lane);
    return lane;
  }

  // The answer ends soon, as cancelled.
  cancel(lane) {
    if (!this.lanes.has(lane.id) || lane.cancelled) return;
    lane.cancelled = true;
    if (!lane.sent) this.#end(lane, "dropped");
    else if (lane.responseId !== null) this.#cancelResponse(lane);
  }

  #send(lane) {
    lane.sent = true;
    this.socket.send(JSON.stringify({ ...lane.body, stream_id: lane.id }));
  }

  #cancelResponse(lane) {
    if (!this.isOpen) return;
    this.socket.send(JSON.stringify({ type: "response.cancel", response_id: lane.responseId }));
  }

  #hear(event) {
    const lane = this.lanes.get(event.stream_id);
    if (!lane) return;
    lane.hears.event(event);
    if (event.type === "response.created") {
      lane.responseId = event.response.id;
      if (lane.cancelled) this.#cancelResponse(lane);
    }
    if (isLast(event)) this.#end(lane, "done");
  }

  #lose() {
    for (const lane of [...this.lanes.values()]) if (lane.sent) this.#end(lane, "lost");
  }

  #end(lane, how) {
    this.lanes.delete(lane.id);
    lane.hears.ended(how);
  }
}

function isLast({ type }) {
  return ["response.completed", "response.incomplete", "response.failed", "error"].includes(type);
}
