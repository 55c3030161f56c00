// Which conversations there are, and which one is open.

import { append, newConversation, pack, rename, unpack } from "./conversation.js";
import { askChoice, askText } from "./dialogs.js";
import { asJson, asMarkdown, fileName } from "./exports.js";
import { download } from "./files.js";
import { MOST_BYTES, readExport, UnreadableError } from "./imports.js";
import { StoreFullError } from "./store.js";

export class Chats {
  // `opened(conversation)` hears that another one is open, `removed(id)` that one is gone.
  constructor({ store, sidebar, notices, opened, removed }) {
    this.store = store;
    this.sidebar = sidebar;
    this.notices = notices;
    this.opened = opened;
    this.removed = removed;
    // A conversation that is being answered stays in memory while another one is open.
    this.answered = null;
    this.current = newConversation();
  }

  // The one that was open last, or the newest.
  begin(id) {
    const ids = [id, ...this.store.list().map((entry) => entry.id)].filter(Boolean);
    const found = ids.map((each) => this.store.load(each)).find((each) => each !== null);
    this.#open(found ?? newConversation());
  }

  open(id) {
    if (id !== this.current.id) this.#open(this.#load(id) ?? newConversation());
  }

  create() {
    this.#open(newConversation());
  }

  // Keep the conversation, as long as there is something in it.
  save(conversation = this.current) {
    if (conversation.messages.length === 0 && conversation.system === "") return;
    try {
      this.store.save(conversation);
    } catch (error) {
      if (!(error instanceof StoreFullError)) throw error;
      this.notices.show(`${error.message} Export or delete some of them.`);
    }
    this.list();
  }

  list() {
    const listed = this.store.list();
    const known = listed.some((entry) => entry.id === this.current.id);
    this.sidebar.show(known ? listed : [this.current, ...listed], this.current.id);
  }

  add(message) {
    append(this.current, message);
  }

  async rename(id) {
    const conversation = this.#load(id);
    if (!conversation) return;
    const title = await askText({ title: "Rename", label: "Title", value: conversation.title });
    if (title === null) return;
    rename(conversation, title);
    this.save(conversation);
    if (conversation === this.current) this.opened(conversation);
  }

  async export(id) {
    const conversation = this.#load(id);
    if (!conversation) return;
    const form = await askChoice({
      title: `Export “${conversation.title}”`,
      choices: [
        ["markdown", "Markdown", "To read: questions, answers and their figures."],
        ["json", "JSON", "Everything, every token's source, round and time included."],
      ],
    });
    if (form === "markdown") {
      download(fileName(conversation.title, "md"), "text/markdown", asMarkdown(conversation));
    } else if (form === "json") {
      download(fileName(conversation.title, "json"), "application/json", asJson(pack(conversation)));
    }
  }

  // Open the conversation that is in `file`, which may be any file.
  async import(file) {
    let conversation;
    try {
      conversation = readExport(file.size > MOST_BYTES ? null : await file.text());
    } catch (error) {
      const said = error instanceof UnreadableError ? error.message : "The browser cannot read it.";
      this.notices.show(`“${file.name}” was not imported. ${said}`);
      return;
    }
    this.save(conversation);
    this.#open(conversation);
    this.notices.show(`“${conversation.title}” was imported.`);
  }

  remove(id) {
    const conversation = this.#load(id);
    this.removed(id);
    this.store.remove(id);
    if (id === this.current.id) this.begin(null);
    else this.list();
    if (!conversation || conversation.messages.length === 0) return;
    this.notices.show(`“${conversation.title}” was deleted.`, () => {
      this.save(conversation);
      this.#open(conversation);
    });
  }

  // As it was when the snapshot was taken.
  snapshot() {
    return structuredClone(pack(this.current));
  }

  restore(snapshot) {
    const conversation = unpack(snapshot);
    this.save(conversation);
    this.#open(conversation);
  }

  // Another tab has changed what is kept.
  refresh() {
    const kept = this.store.load(this.current.id);
    if (kept && !this.answered && kept.updated > this.current.updated) this.#open(kept);
    else this.list();
  }

  #load(id) {
    if (id === this.current.id) return this.current;
    return id === this.answered?.id ? this.answered : this.store.load(id);
  }

  #open(conversation) {
    this.current = conversation;
    this.list();
    this.opened(conversation);
  }
}
