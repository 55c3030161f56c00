// The parts of the page that show one thing each: titles, states, switches.

import { byId, el, setText, show } from "./dom.js";
import { SAMPLES } from "./samples.js";
import { COMPARISONS } from "./settings.js";

const STATES = {
  connecting: ["Connecting", "waits"],
  key: ["Needs an API key", "waits"],
  loading: ["The model is loading", "waits"],
  draining: ["The gateway is shutting down", "waits"],
  unreachable: ["No gateway", "bad"],
  ready: ["Connecting", "waits"],
  open: ["Ready", "good"],
  lost: ["Reconnecting", "waits"],
};

export class PageParts {
  // `does` are write(text) for a sample question, setSystem(text) while it is written, and
  // keepSystem() behind that.
  constructor({ drawer, does }) {
    this.drawer = drawer;
    this.welcomed = byId("welcome");
    this.systemField = byId("system");
    this.systemField.addEventListener("input", () => does.setSystem(this.systemField.value));
    this.systemField.addEventListener("change", () => does.keepSystem());
    byId("samples").append(...SAMPLES.map(([label, words, text]) => (
      el("li", {}, el(
        "button",
        { type: "button", class: "sample", onclick: () => does.write(text) },
        el("span", { class: "sample-label" }, label),
        el("span", {}, words),
      ))
    )));
  }

  title(text) {
    setText(byId("title"), text);
    document.title = `${text} – Outpace`;
  }

  welcome(shown) {
    show(this.welcomed, shown);
    show(byId("title"), !shown);
  }

  state(state, seen) {
    const [words, kind] = STATES[state];
    setText(byId("state-words"), words);
    byId("state").dataset.kind = kind;
    byId("state").title = seen?.message ?? words;
  }

  model({ id, context_length: context }) {
    setText(byId("model"), id);
    byId("model").title = `${context} tokens of context`;
  }

  system(text) {
    this.systemField.value = text;
  }

  openPanel() {
    this.drawer.toggle(true);
  }
}

// The switches of what is shown and how it is asked.
export function bindSwitches(settings) {
  const colours = byId("colours");
  const probabilities = byId("probabilities");
  const compare = byId("compare");
  compare.append(...COMPARISONS.map((value) => el("option", { value }, value)));
  const apply = () => {
    const { values } = settings;
    colours.checked = values.colours;
    probabilities.checked = values.probabilities;
    compare.value = values.compare;
    document.body.classList.toggle("uncoloured", !values.colours);
  };
  colours.addEventListener("change", () => { settings.keep({ colours: colours.checked }); apply(); });
  probabilities.addEventListener("change", () => settings.keep({ probabilities: probabilities.checked }));
  compare.addEventListener("change", () => settings.keep({ compare: compare.value }));
  apply();
  return {
    toggleColours() {
      settings.keep({ colours: !settings.values.colours });
      apply();
    },
    nextComparison() {
      const at = COMPARISONS.indexOf(settings.values.compare);
      settings.keep({ compare: COMPARISONS[(at + 1) % COMPARISONS.length] });
      apply();
      return settings.values.compare;
    },
  };
}
