// What is measured of the answer that is looked at.

import { el, setText } from "./dom.js";
import { legend } from "./legend.js";
import { metersOf } from "./summary.js";
import { timeline } from "./timeline.js";

export class Panel {
  // `meters` is a list of terms; `sources` and `rounds` hold what is drawn anew each time.
  constructor({ meters, sources, rounds }) {
    this.meters = meters;
    this.sources = sources;
    this.rounds = rounds;
    this.drawn = null;
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
    const drawn = run ? `${run.seed} ${run.responseId} ${run.trace.length} ${run.trace.steps.length}` : "";
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.sources.replaceChildren(legend(run?.trace ?? null));
    this.rounds.replaceChildren(run && run.trace.steps.length > 0 ? timeline(run.trace) : hint());
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
