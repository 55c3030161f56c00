// What is known of the token under the pointer, the finger or the arrow keys.

import { el } from "./dom.js";
import { tokenFacts, tokenSentence } from "./facts.js";
import { swatch } from "./legend.js";

const LEAVE_MS = 150;
const MARGIN = 8;

export class Inspector {
  // `card` shows the facts; `announce` says them to who cannot see it.
  constructor({ root, card, announce }) {
    this.card = card;
    this.announce = announce;
    this.shown = null;
    this.run = null;
    this.index = -1;
    root.addEventListener("pointerover", (event) => this.#enter(event));
    root.addEventListener("pointerout", (event) => this.#leave(event));
    root.addEventListener("click", (event) => this.#enter(event));
    root.addEventListener("scroll", () => this.#follow(), { passive: true });
    card.addEventListener("pointerenter", () => clearTimeout(this.leaving));
    card.addEventListener("pointerleave", () => this.hide());
  }

  // Go through the tokens of `run` with the arrow keys; whether `key` is one that does something.
  key(run, key) {
    const last = run.trace.length - 1;
    const at = run === this.run ? this.index : -1;
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last };
    if (key === "Escape" && this.shown) {
      this.hide();
      return true;
    }
    if (!(key in moves) || last < 0) return false;
    const index = Math.max(0, Math.min(last, moves[key]));
    this.#show(run, index, tokensOf(runNode(run), index)[0] ?? runNode(run));
    this.announce(tokenSentence(run, index));
    return true;
  }

  hide() {
    clearTimeout(this.leaving);
    for (const token of this.shown ?? []) token.classList.remove("inspected");
    this.shown = null;
    this.run = null;
    this.card.hidden = true;
  }

  #enter(event) {
    if (event.target.closest?.(".inspect")) return;
    const token = event.target.closest?.(".token");
    const node = token?.closest(".run");
    if (!node) {
      if (event.type === "click") this.hide();
      return;
    }
    clearTimeout(this.leaving);
    this.#show(node.run, Number(token.dataset.token), token, event);
  }

  // A moment, so that the pointer can go on to the card.
  #leave(event) {
    if (event.pointerType === "touch" || !event.target.closest?.(".token")) return;
    clearTimeout(this.leaving);
    this.leaving = setTimeout(() => this.hide(), LEAVE_MS);
  }

  #show(run, index, token, event = null) {
    this.hide();
    this.run = run;
    this.index = index;
    this.shown = tokensOf(runNode(run), index);
    for (const each of this.shown) each.classList.add("inspected");
    this.card.replaceChildren(...contentOf(run, index));
    this.card.hidden = false;
    this.token = token;
    if (!event) token.scrollIntoView({ block: "nearest" });
    this.#place(token, event);
  }

  #follow() {
    if (!this.shown) return;
    if (this.token.isConnected) this.#place(this.token, null);
    else this.hide();
  }

  // Below the token, or above it where there is no room.
  #place(token, event) {
    const boxes = [...token.getClientRects()];
    const over = event && boxes.find((box) => event.clientY >= box.top && event.clientY <= box.bottom);
    const box = over ?? boxes[0] ?? token.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.card;
    const right = document.documentElement.clientWidth - width - MARGIN;
    const below = box.bottom + MARGIN;
    const fits = below + height < document.documentElement.clientHeight;
    this.card.style.left = `${Math.max(MARGIN, Math.min(box.left, right))}px`;
    this.card.style.top = `${fits ? below : Math.max(MARGIN, box.top - height - MARGIN)}px`;
  }
}

function runNode(run) {
  return [...document.querySelectorAll(".run")].find((node) => node.run === run);
}

function tokensOf(node, index) {
  return node ? [...node.querySelectorAll(`[data-token="${index}"]`)] : [];
}

function contentOf(run, index) {
  const { text, source, rows } = tokenFacts(run, index);
  const terms = rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  return [
    el("p", { class: "card-token" }, swatch(source), el("code", {}, text)),
    el("dl", {}, terms),
  ];
}
