// Evaluated on the page: whether an answer that grew piece by piece looks as one that came whole.
async ({ text, sizes }) => {
  const { MarkdownView } = await import("/page/markdown.js");
  const { Trace } = await import("/page/trace.js");
  const growing = new MarkdownView();
  const trace = new Trace();
  document.getElementById("messages").append(growing.node);
  const wrong = [];
  let end = 0;
  for (let at = 0; end < text.length; at += 1) {
    const piece = text.slice(end, end + sizes[at % sizes.length]);
    end += piece.length;
    const source = at % 2 ? "ngram" : "target";
    trace.add({ texts: [piece], sources: [source], token_rounds: [at], token_ms: [at], rounds: [] });
    growing.update(text.slice(0, end), trace);
    const whole = new MarkdownView();
    whole.update(text.slice(0, end), trace);
    if (whole.node.innerHTML !== growing.node.innerHTML) wrong.push(text.slice(0, end));
  }
  return wrong.slice(0, 3);
}
