// A run on the page: its text with the tokens' sources, its state and its figures.

import { el, setText, show } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { hasEnded } from "./run.js";
import { stateOf, summaryOf } from "./summary.js";

export class RunView {
  constructor(run, heading = null) {
    this.run = run;
    this.markdown = new MarkdownView();
    this.state = el("p", { class: "run-state" });
    this.figures = el("ul", { class: "figures", "aria-label": "Figures of this answer" });
    this.node = el(
      "section",
      { class: run.plain ? "run plain" : "run" },
      heading ? el("h4", { class: "run-heading" }, heading) : null,
      this.markdown.node,
      this.state,
      this.figures,
    );
    // Where a pointer on a token finds what is known of it.
    this.node.run = run;
  }

  update(plain, status) {
    const { run } = this;
    this.markdown.update(run.text, run.trace);
    const said = stateOf(run);
    setText(this.state, said);
    show(this.state, said !== "");
    this.node.dataset.status = run.status;
    this.node.setAttribute("aria-busy", String(!hasEnded(run)));
    const parts = summaryOf(run, plain, status);
    this.figures.replaceChildren(...parts.map(figure));
    show(this.figures, parts.length > 0);
  }
}

function figure({ name, value, help }) {
  const label = name === "" ? null : el("span", { class: "figure-name" }, `${name} `);
  return el("li", { title: help }, label, value);
}
