// One question while it is being answered: by one run, or by two that are compared.
//
// An answer that is lost with the connection is asked again with the same seed. It is the same
// answer then, so what was read of it stays until the new one has caught up.

import { hasEnded, hear, newRun } from "./run.js";

const MOST_TRIES = 3;

export class Asking {
  // `bodyOf(run)` is the request for a run; `changed()` hears of everything that happens to them.
  constructor({ connection, message, bodyOf, changed }) {
    this.connection = connection;
    this.message = message;
    this.bodyOf = bodyOf;
    this.changed = changed;
    this.stopped = false;
    this.lanes = new Set();
  }

  // Until all of its runs have ended.
  async answer() {
    const { runs, compare } = this.message;
    if (compare === "at once") {
      await Promise.all(runs.map((run) => this.#answer(run)));
      return;
    }
    for (const run of runs) await this.#answer(run);
  }

  // What runs ends soon; what has not begun does not begin.
  stop() {
    this.stopped = true;
    for (const lane of [...this.lanes]) this.connection.cancel(lane);
  }

  async #answer(run) {
    for (let tries = 1; !hasEnded(run); tries += 1) {
      if (this.stopped) run.status = "cancelled";
      else if (tries > MOST_TRIES) run.status = "interrupted";
      else await this.#ask(run);
      this.changed();
    }
  }

  #ask(run) {
    const fresh = newRun(run);
    return new Promise((resolve) => {
      const lane = this.connection.ask(this.bodyOf(run), {
        event: (event) => {
          hear(fresh, event);
          if (hasEnded(fresh) || fresh.text.length >= run.text.length) Object.assign(run, fresh);
          this.changed();
        },
        ended: (how) => {
          this.lanes.delete(lane);
          if (how === "dropped") run.status = "cancelled";
          if (how === "lost") run.status = "lost";
          resolve();
        },
      });
      this.lanes.add(lane);
    });
  }
}
