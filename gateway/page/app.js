// The page's work: questions are asked, answers come in, and what happens is shown.

import { Asking } from "./asking.js";
import { cutFrom, find, inputBefore, question, reply } from "./conversation.js";
import { drawnSoon } from "./frames.js";
import { requestBody, seedFor, speculates } from "./request.js";
import { newRun } from "./run.js";
import { stateOf } from "./summary.js";

export class App {
  // `services` ask the gateway and keep things; the parts that show things are attached.
  constructor(services) {
    Object.assign(this, services);
    this.status = null;
    this.asking = null;
    this.looked = null;
    this.draw = drawnSoon(() => this.show());
  }

  attach(parts) {
    Object.assign(this, parts);
  }

  get conversation() {
    return this.chats.current;
  }

  // Show everything as it is now.
  show() {
    const { conversation } = this;
    this.page.title(conversation.title);
    this.page.welcome(conversation.messages.length === 0);
    this.thread.show(conversation, this.status);
    const [run, plain] = this.#lookedAt()?.runs ?? [];
    this.panel.show(run ?? null, plain ?? null, this.status);
  }

  // Another conversation is open.
  opened(conversation) {
    this.looked = null;
    this.inspector.hide();
    this.thread.clear();
    this.page.system(conversation.system);
    this.settings.keep({ current: conversation.id });
    this.show();
  }

  // Whether the question was taken.
  send(text) {
    const values = this.#values();
    if (values === null) return false;
    this.chats.add(question(text));
    this.#ask(values);
    return true;
  }

  // Answer again the question that `id` answers; what followed goes.
  retry(id) {
    const values = this.#values();
    if (values === null || find(this.conversation, id) === null) return;
    this.#replacing(() => cutFrom(this.conversation, id));
    this.#ask(values);
  }

  // Ask `text` in the place of the question `id`.
  edit(id, text) {
    const values = this.#values();
    if (values === null || find(this.conversation, id) === null) return;
    this.#replacing(() => cutFrom(this.conversation, id));
    this.chats.add(question(text));
    this.#ask(values);
  }

  stop() {
    this.asking?.stop();
  }

  // The last answer once more, the last question to be changed, the last answer's tokens.
  retryLast() {
    const last = this.#last("assistant");
    if (last) this.retry(last.id);
  }

  editLast() {
    const last = this.#last("user");
    if (last && !this.asking) this.thread.viewOf(last.id).edit();
  }

  inspectLast() {
    const last = this.#last("assistant");
    if (!last) return;
    this.thread.viewOf(last.id).node.querySelector(".inspect").focus();
    this.inspector.key(last.runs[0], "Home");
  }

  // A conversation is deleted: nobody waits for its answer any more.
  removed(id) {
    if (this.chats.answered?.id === id) this.#abandon();
  }

  setSystem(text) {
    this.conversation.system = text;
  }

  look(id) {
    if (this.looked === id) return;
    this.looked = id;
    this.draw();
  }

  // What keeps the page connected says how that goes.
  linked(state, seen) {
    this.page.state(state, seen);
    if (state !== "ready") return;
    this.status = seen.status;
    const model = this.form.offerModels(seen.models);
    this.page.model(model);
    this.form.offerDrafters(model.drafters ?? [], seen.status.drafter);
    this.draw();
  }

  // The values to ask with; null where something is wrong with them, or an answer is running.
  #values() {
    if (this.asking) {
      this.notices.show("An answer is running. Stop it first.");
      return null;
    }
    const { values, valid } = this.form.read();
    if (valid) return values;
    this.page.openPanel();
    this.form.focusProblem();
    return null;
  }

  #replacing(cut) {
    const before = this.chats.snapshot();
    const taken = cut().filter((message) => message.role === "assistant").length;
    const what = taken > 1 ? `${taken} answers were replaced.` : "The answer was replaced.";
    this.notices.show(what, () => {
      this.#abandon();
      this.chats.restore(before);
    });
  }

  async #ask(values) {
    const { conversation } = this;
    const { compare, probabilities } = this.settings.values;
    const compared = compare !== "off" && speculates(values);
    const seed = seedFor(values);
    const runs = [newRun({ seed }), ...(compared ? [newRun({ seed, plain: true })] : [])];
    const message = reply(runs, compared ? compare : null);
    this.chats.add(message);
    const input = inputBefore(conversation, message.id);
    const { system } = conversation;
    const bodyOf = ({ plain }) => requestBody({ input, system, values, seed, plain, probabilities });
    const asking = new Asking({ connection: this.connection, message, bodyOf, changed: this.draw });
    this.#begin(asking, conversation);
    await asking.answer();
    if (this.asking === asking) await this.#end(message, conversation);
  }

  #begin(asking, conversation) {
    this.asking = asking;
    this.chats.answered = conversation;
    this.looked = asking.message.id;
    this.composer.setBusy(true);
    this.chats.save(conversation);
    this.thread.follow();
    this.show();
    this.link.nudge();
  }

  async #end(message, conversation) {
    this.#release();
    this.chats.save(conversation);
    this.show();
    const [run] = message.runs;
    this.notices.announce(`Answer: ${run.text} ${stateOf(run)}`);
    this.status = (await this.gateway.status()) ?? this.status;
    this.draw();
  }

  // Stop, and let nobody hear of it: what was being answered is gone.
  #abandon() {
    const { asking } = this;
    this.#release();
    asking?.stop();
  }

  #release() {
    this.asking = null;
    this.chats.answered = null;
    this.composer.setBusy(false);
  }

  #lookedAt() {
    const looked = this.looked === null ? null : find(this.conversation, this.looked);
    return looked?.runs ? looked : this.#last("assistant");
  }

  #last(role) {
    return this.conversation.messages.findLast((message) => message.role === role) ?? null;
  }
}
