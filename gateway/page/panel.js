// What is measured of the answer that is looked at.

import { el, setText } from "./dom.js";
import { legend } from "./legend.js";
import { hasEnded } from "./run.js";
import { metersOf } from "./summary.js";
import { timeline } from "./timeline.js";

// Between two pictures of an answer that grows.
const PAUSE_MS = 200;

export class Panel {
  // `meters` is a list of terms; `sources` and `rounds` hold what is drawn anew each time.
  constructor({ meters, sources, rounds }) {
    this.meters = meters;
    this.sources = sources;
    this.rounds = rounds;
    this.answer = null;
    this.drawn = null;
    this.drawnAt = 0;
  }

  // `run` null: there is no answer yet.
  show(run, plain, status) {
    const values = metersOf(run, plain, status);
    if (this.meters.childElementCount !== values.length) {
      this.meters.replaceChildren(...values.map(meter));
    }
    values.forEach(({ value, help }, index) => {
      const node = this.meters.children[index];
      setText(node.querySelector(".meter-value"), value);
      setText(node.querySelector(".meter-help"), help);
    });
    this.#draw(run);
  }

  #draw(run) {
    const grows = run !== null && !hasEnded(run);
    const answer = run ? `${run.seed} ${run.responseId} ${grows}` : "";
    const drawn = run ? `${run.trace.length} ${run.trace.steps.length}` : "";
    if (answer === this.answer && drawn === this.drawn) return;
    const now = performance.now();
    if (grows && answer === this.answer && now - this.drawnAt < PAUSE_MS) return;
    this.answer = answer;
    this.drawn = drawn;
    this.drawnAt = now;
    this.sources.replaceChildren(legend(run?.trace ?? null));
    this.rounds.replaceChildren(run && run.trace.steps.length > 0 ? timeline(run.trace, grows) : hint());
  }
}

function meter({ name }) {
  return el(
    "div",
    { class: "meter" },
    el("dt", {}, name),
    el("dd", {}, el("span", { class: "meter-value" }), el("span", { class: "meter-help" })),
  );
}

function hint() {
  return el("p", { class: "hint" }, "What each round drafted, what of it was accepted, and how long it took.");
}
