// Puts the page together.

import { App } from "./app.js";
import { Chats } from "./chats.js";
import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { askText } from "./dialogs.js";
import { byId } from "./dom.js";
import { Drawer } from "./drawer.js";
import { ParameterForm } from "./form.js";
import { Gateway } from "./gateway.js";
import { icon } from "./icons.js";
import { Inspector } from "./inspector.js";
import { Key, keyProblem } from "./key.js";
import { Link } from "./link.js";
import { Notices } from "./notices.js";
import { bindSwitches, PageParts } from "./pageparts.js";
import { Panel } from "./panel.js";
import { Settings } from "./settings.js";
import { Shortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { MemoryStorage, Store } from "./store.js";
import { Theme } from "./theme.js";
import { Thread } from "./thread.js";

function main() {
  for (const node of document.querySelectorAll("[data-icon]")) node.prepend(icon(node.dataset.icon));
  const local = storageOf("localStorage");
  const store = new Store(local);
  const app = new App(servicesOf(store));
  const drawers = { chats: drawerOf("chats", "(min-width: 50rem)"), panel: drawerOf("panel", "(min-width: 75rem)") };
  app.attach(readingParts(app));
  app.attach(chatParts(app, store, drawers));
  app.attach(askingParts(app, drawers));
  const create = () => {
    app.chats.create();
    drawers.chats.yield();
    app.composer.focus();
  };
  byId("new").addEventListener("click", create);
  bindImport(app, drawers);
  bindKeys(app, { create, drawers, theme: new Theme(local, byId("theme")) });
  bindWindow(app);
  app.chats.begin(app.settings.values.current);
  // Where fingers write, focus would open a keyboard over half of the page.
  if (window.matchMedia("(pointer: fine)").matches) app.composer.focus();
  app.link.keep();
}

// A browser may refuse a page its storage: then everything lasts as long as the page.
function storageOf(name) {
  try {
    const storage = window[name];
    storage.getItem("outpace");
    return storage;
  } catch {
    return new MemoryStorage();
  }
}

function servicesOf(store) {
  const base = document.baseURI;
  const address = new URL("v1/responses", base).href.replace(/^http/, "ws");
  const key = new Key(storageOf("sessionStorage"));
  return {
    settings: new Settings(store),
    key,
    gateway: new Gateway(base, key),
    connection: new Connection(() => new WebSocket(address, key.protocols())),
    notices: new Notices({ line: byId("notice"), polite: byId("polite"), quick: byId("quick") }),
  };
}

// What shows the open conversation and what is measured of it.
function readingParts(app) {
  const scroller = byId("scroller");
  return {
    inspector: new Inspector({
      root: scroller,
      card: byId("card"),
      announce: (text) => app.notices.answer(text),
    }),
    thread: new Thread({
      scroller,
      list: byId("messages"),
      latest: byId("latest"),
      does: {
        retry: (id) => app.retry(id),
        edit: (id, text) => app.edit(id, text),
        inspect: (run, pressed) => app.inspector.key(run, pressed),
        look: (id) => app.look(id),
      },
    }),
    panel: new Panel({ meters: byId("meters"), sources: byId("sources"), rounds: byId("rounds") }),
  };
}

// What keeps the conversations.
function chatParts(app, store, drawers) {
  const sidebar = new Sidebar(byId("chat-list"), {
    open: (id) => {
      app.chats.open(id);
      drawers.chats.yield();
    },
    rename: (id) => app.chats.rename(id),
    export: (id) => app.chats.export(id),
    remove: (id) => app.chats.remove(id),
  });
  const chats = new Chats({
    store,
    sidebar,
    notices: app.notices,
    opened: (conversation) => app.opened(conversation),
    removed: (id) => app.removed(id),
  });
  return { chats };
}

// What asks.
function askingParts(app, drawers) {
  const { settings, gateway, connection, key } = app;
  const composer = new Composer({
    form: byId("ask"),
    field: byId("question"),
    send: byId("send"),
    stop: byId("stop"),
    does: { send: (text) => app.send(text), stop: () => app.stop() },
  });
  const form = new ParameterForm({
    groups: { sampling: byId("sampling"), speculation: byId("speculation") },
    texts: settings.values.texts,
    changed: (texts) => settings.keep({ texts }),
  });
  byId("clear").addEventListener("click", () => form.clear());
  const page = new PageParts({
    drawer: drawers.panel,
    does: {
      write: (text) => composer.write(text),
      setSystem: (text) => app.setSystem(text),
      keepSystem: () => app.chats.save(),
    },
  });
  const link = new Link({
    gateway,
    connection,
    changed: (state, seen) => app.linked(state, seen),
    askKey: () => askKey(key),
  });
  return { composer, form, page, link, switches: bindSwitches(settings) };
}

function bindImport(app, drawers) {
  const chosen = byId("import-file");
  byId("import").addEventListener("click", () => chosen.click());
  chosen.addEventListener("change", async () => {
    const [file] = chosen.files;
    if (!file) return;
    await app.chats.import(file);
    // So that the same file can be chosen again.
    chosen.value = "";
    drawers.chats.yield();
  });
}

function bindKeys(app, { create, drawers, theme }) {
  const { settings, inspector, switches, notices } = app;
  const shortcuts = new Shortcuts({
    enabled: settings.values.singleKeys,
    changed: (singleKeys) => settings.keep({ singleKeys }),
    escape: () => (inspector.shown ? inspector.hide() : app.stop()),
    actions: [
      ["/", "Write a question", () => app.composer.focus()],
      ["n", "New conversation", create],
      ["e", "Change the last question", () => app.editLast()],
      ["r", "Ask for the last answer again", () => app.retryLast()],
      ["t", "Inspect the last answer's tokens", () => app.inspectLast()],
      ["c", "Colour tokens by source, or not", () => switches.toggleColours()],
      ["x", "Compare: off, one after another, at once", () => {
        notices.show(`Compare with plain decoding: ${switches.nextComparison()}.`);
      }],
      ["p", "Measurements and parameters", () => drawers.panel.toggle()],
      ["l", "List of conversations", () => drawers.chats.toggle()],
      ["d", "Theme: as the system, light, dark", () => theme.next()],
      ["?", "This list", () => shortcuts.list()],
    ],
  });
  byId("help").addEventListener("click", () => shortcuts.list());
}

function bindWindow({ chats, link }) {
  window.addEventListener("online", () => link.nudge());
  document.addEventListener("visibilitychange", () => { if (!document.hidden) link.nudge(); });
  window.addEventListener("pagehide", () => chats.save(chats.answered ?? chats.current));
  window.addEventListener("storage", ({ key }) => { if (Store.isOurs(key)) chats.refresh(); });
}

function drawerOf(id, room) {
  return new Drawer({ node: byId(id), button: byId(`toggle-${id}`), room, covered: byId("main") });
}

// Whether a key was entered.
async function askKey(key) {
  const refused = key.value !== null;
  key.value = await askText({
    title: "API key",
    explain: refused
      ? "The gateway refused this key."
      : "This gateway asks for an API key. It is kept in this tab until you close it.",
    label: "Key",
    type: "password",
    action: "Use it",
    check: keyProblem,
  });
  return key.value !== null;
}

main();
