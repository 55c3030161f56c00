// Evaluated on the page: shows an answer token by token, and tells what a token changes and costs
// early and late: { changes, ms } on average.
async ({ head, unit, tokens }) => {
  const { MarkdownView } = await import("/page/markdown.js");
  const { Trace } = await import("/page/trace.js");
  const pieces = unit.match(/\s?\w+|\s|[^\w\s]/g);
  const view = new MarkdownView();
  const trace = new Trace();
  document.getElementById("messages").append(view.node);
  const observer = new MutationObserver(() => {});
  observer.observe(view.node, { subtree: true, childList: true, characterData: true, attributes: true });
  let text = "";
  const say = (piece, at) => {
    text += piece;
    trace.add({ texts: [piece], sources: [at % 3 ? "target" : "ngram"], token_rounds: [at], token_ms: [at], rounds: [] });
    view.update(text, trace);
    return view.node.offsetHeight;
  };
  const windows = { early: [100, 300], late: [tokens - 200, tokens] };
  const sums = { early: { changes: 0, ms: 0 }, late: { changes: 0, ms: 0 } };
  say(head, 0);
  for (let at = 1; at <= tokens; at += 1) {
    const begun = performance.now();
    say(pieces[at % pieces.length], at);
    const took = performance.now() - begun;
    const changes = observer.takeRecords().reduce(
      (sum, { type, addedNodes, removedNodes }) => sum + (type === "childList" ? addedNodes.length + removedNodes.length : 1),
      0,
    );
    for (const [name, [from, to]] of Object.entries(windows)) {
      if (at <= from || at > to) continue;
      sums[name].changes += changes / (to - from);
      sums[name].ms += took / (to - from);
    }
  }
  return sums;
}
