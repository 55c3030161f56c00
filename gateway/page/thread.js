// The conversation as it is read: its messages in order, and staying at the end while one grows.

import { show } from "./dom.js";
import { QuestionView } from "./questionview.js";
import { ReplyView } from "./replyview.js";

const NEAR_PX = 80;

export class Thread {
  // `scroller` is what scrolls, `list` holds the messages, `latest` goes to the newest one.
  constructor({ scroller, list, latest, does }) {
    this.scroller = scroller;
    this.list = list;
    this.latest = latest;
    this.does = does;
    this.views = new Map();
    this.following = true;
    scroller.addEventListener("scroll", () => this.#notice(), { passive: true });
    latest.addEventListener("click", () => this.follow());
  }

  // Show the conversation's messages; what was shown of them already keeps its elements.
  show(conversation, status) {
    const ids = new Set(conversation.messages.map((message) => message.id));
    for (const [id, view] of this.views) {
      if (ids.has(id)) continue;
      view.node.remove();
      this.views.delete(id);
    }
    for (const message of conversation.messages) this.#viewOf(message).update(status);
    if (this.following && this.views.size > 0) this.#toEnd();
  }

  // Forget all: another conversation is shown, from its end.
  clear() {
    for (const view of this.views.values()) view.node.remove();
    this.views.clear();
    this.scroller.scrollTop = 0;
    this.following = true;
    show(this.latest, false);
  }

  viewOf(id) {
    return this.views.get(id);
  }

  follow() {
    this.following = true;
    show(this.latest, false);
    this.#toEnd();
  }

  #viewOf(message) {
    const known = this.views.get(message.id);
    if (known) return known;
    const made = message.runs ? new ReplyView(message, this.does) : new QuestionView(message, this.does);
    this.views.set(message.id, made);
    this.list.append(made.node);
    return made;
  }

  #notice() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    this.following = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    show(this.latest, !this.following);
  }

  #toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
