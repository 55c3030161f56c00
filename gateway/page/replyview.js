// An answer in the thread: one run or two beside each other, and what can be done with it.

import { copyButton } from "./clipboard.js";
import { el, setText, show } from "./dom.js";
import { iconButton, wordButton } from "./icons.js";
import { hasEnded } from "./run.js";
import { RunView } from "./runview.js";
import { verdictOf } from "./summary.js";
import { roundsTable, timeline } from "./timeline.js";

export class ReplyView {
  // `does` are the page's actions: retry(id), inspect(run, key), look(id).
  constructor(message, does) {
    this.message = message;
    this.ended = false;
    const compared = message.runs.length > 1;
    const headings = compared ? ["With speculation", "Plain decoding"] : [null];
    this.runs = message.runs.map((run, index) => new RunView(run, headings[index]));
    this.verdict = el("p", { class: "verdict" });
    this.rounds = this.#rounds();
    this.actions = this.#actions(does);
    const label = `label-${message.id}`;
    this.node = el(
      "article",
      { class: "reply", "aria-labelledby": label, "data-message": message.id },
      el("h3", { class: "who", id: label }, "Answer"),
      el("div", { class: compared ? "runs compared" : "runs" }, this.runs.map((view) => view.node)),
      this.verdict,
      this.actions,
      this.rounds,
    );
    this.node.addEventListener("focusin", () => does.look(message.id));
    this.node.addEventListener("pointerdown", () => does.look(message.id));
  }

  // `latest`: nothing follows it, so that it may be asked again without losing anything.
  update(status) {
    if (this.ended && this.known === (status !== null)) return;
    const [run, plain] = this.message.runs;
    this.runs.forEach((view) => view.update(plain ?? null, status));
    const verdict = verdictOf(this.message);
    setText(this.verdict, verdict?.text ?? "");
    show(this.verdict, verdict !== null);
    this.verdict.dataset.same = String(verdict?.same ?? "");
    this.ended = this.message.runs.every(hasEnded);
    this.known = status !== null;
    show(this.actions, this.ended);
    show(this.rounds, run.trace.steps.length > 0 && this.ended);
  }

  #actions(does) {
    const [run] = this.message.runs;
    return el(
      "div",
      { class: "actions" },
      copyButton(() => run.text, "Copy the answer"),
      iconButton("retry", "Ask again", () => does.retry(this.message.id)),
      wordButton("tokens", "Inspect tokens", () => does.inspect(run, "Home"), {
        class: "word-button inspect",
        title: "Then the arrow keys go from token to token",
        onkeydown: (event) => {
          if (does.inspect(run, event.key)) event.preventDefault();
        },
      }),
    );
  }

  // Drawn when it is opened: most never are.
  #rounds() {
    const [run] = this.message.runs;
    const body = el("div", { class: "rounds-body", tabindex: "0", role: "group", "aria-label": "Rounds" });
    const details = el("details", { class: "rounds" }, el("summary", {}, "Rounds"), body);
    details.addEventListener("toggle", () => {
      if (details.open) body.replaceChildren(timeline(run.trace), roundsTable(run.trace));
    });
    return details;
  }
}
