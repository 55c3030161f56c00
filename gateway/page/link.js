// Keeps the page connected: looks whether the gateway may be used, opens the connection, and
// begins anew when that is gone.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

export class Link {
  // `changed(state, seen)` hears every change; `askKey()` resolves to whether there is a key now.
  constructor({ gateway, connection, changed, askKey, pause = pauseFor }) {
    this.gateway = gateway;
    this.connection = connection;
    this.changed = changed;
    this.askKey = askKey;
    this.pause = pause;
    this.wake = () => {};
  }

  // For as long as the page is open.
  async keep() {
    for (let tries = 0; ;) {
      const how = await this.attempt();
      if (how === "refused") await this.#woken();
      if (how === "closed") this.changed("lost");
      tries = how === "failed" ? tries + 1 : 0;
      await this.#wait(tries);
    }
  }

  // One connection from beginning to end: "closed"; or why there was none: "early" while the model
  // loads, "refused" where nobody gives a key, otherwise "failed".
  async attempt() {
    const seen = await this.gateway.look();
    if (seen.state === "key") {
      this.changed("key");
      return (await this.askKey()) ? this.attempt() : "refused";
    }
    this.changed(seen.state, seen);
    if (seen.state === "loading") return "early";
    if (seen.state !== "ready" || !(await this.connection.open())) return "failed";
    this.changed("open");
    await this.connection.closed;
    return "closed";
  }

  // Do not wait any longer: the network is back, or somebody asks.
  nudge() {
    this.wake();
  }

  async #wait(tries) {
    const most = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(tries, 6));
    // Many pages lose a gateway at once, and should not all come back at once.
    await Promise.race([this.pause(most * (0.5 + Math.random() / 2)), this.#woken()]);
  }

  #woken() {
    return new Promise((resolve) => { this.wake = resolve; });
  }
}

function pauseFor(ms) {
  return new Promise((resolve) => { setTimeout(resolve, ms); });
}
