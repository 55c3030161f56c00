// Markdown's blocks: their kinds, their nesting, and where their text stands in the source.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseMarkdown } from "../../gateway/page/blocks.js";
import { outline, textOf } from "./outline.mjs";

const CASES = [
  ["one\ntwo\n\nthree", "p(one/two) p(three)"],
  ["# A #\n### B ##\n#C", "h1(A) h3(B) p(#C)"],
  ["a\n---\nb\n* * *", "p(a) hr p(b) hr"],
  ["```js\nlet a;\n\n  b\n```\nafter", "code:js(let a;||  b) p(after)"],
  ["```\nopen", "code:(open)"],
  ["~~~~\n```\n~~~\n~~~~", "code:(```|~~~)"],
  ["``` a`b", "p(``` a`b)"],
  ["> a\nb\n> - c\n\nd", "quote(p(a/b) ul(li(p(c)))) p(d)"],
  [">", "quote()"],
  ["- a\n- b\n  c\n\n  d\n\ne", "ul(li(p(a)) li(p(b/c) p(d))) p(e)"],
  ["- a\nlazy", "ul(li(p(a/lazy)))"],
  ["1. a\n2. b\n   - c\n   - d\n3. e", "ol1(li(p(a)) li(p(b) ul(li(p(c)) li(p(d)))) li(p(e)))"],
  ["1. a\n  - b\n2. c", "ol1(li(p(a) ul(li(p(b)))) li(p(c)))"],
  ["- a\n\t- b\n- c", "ul(li(p(a) ul(li(p(b)))) li(p(c)))"],
  ["7) a\n8) b", "ol7(li(p(a)) li(p(b)))"],
  ["a\n2. b", "p(a/2. b)"],
  ["a\n1. b", "p(a) ol1(li(p(b)))"],
  ["- a\n1. b", "ul(li(p(a))) ol1(li(p(b)))"],
  ["- [ ] a\n- [x] b", "ul(todo(p(a)) done(p(b)))"],
  ["1. run\n  ```sh\n  make\n  ```\n2. done", "ol1(li(p(run) code:sh(make)) li(p(done)))"],
  ["- ```\n  x\nout", "ul(li(code:(x))) p(out)"],
  ["-\n- a", "ul(li() li(p(a)))"],
  ["- - a", "ul(li(ul(li(p(a)))))"],
  ["| a | b |\n|--|:-:|\n| 1 | 2 |\n| 3 |\nend", "table[-,center](a,b|1,2|3) p(end)"],
  ["a | b\n-|-:\n1 \\| x | 2", "table[-,right](a,b|1 | x,2)"],
  ["|a|\n|-|\n|1|", "table[-](a|1)"],
  ["a | b\n- | - | -", "p(a | b) ul(li(p(| - | -)))"],
  ["text\n| a |\n| - |", "p(text) table[-](a)"],
  ["<b>x</b>\n<!-- y -->", "p(<b>x</b>/<!-- y -->)"],
  ["a\r\nb", "p(a/b)"],
  ["", ""],
  ["\n \n", ""],
];

for (const [source, expected] of CASES) {
  test(JSON.stringify(source), () => {
    assert.equal(outline(source, parseMarkdown(source)), expected);
  });
}

test("blocks know the lines that they are made of", () => {
  const source = "# A\n\npara\nmore\n\n```\nx\n```\n";
  const pieces = parseMarkdown(source).map(({ from, to }) => source.slice(from, to));
  assert.deepEqual(pieces, ["# A", "para\nmore", "```\nx\n```"]);
});

test("every beginning of a text can be read, and what is finished stays as it is", () => {
  const source = "# T\n\n- a **b**\n  - c\n\n| x | y |\n|---|---|\n| 1 | `2` |\n\n```py\nz = 1\n```\n> q\n";
  const whole = parseMarkdown(source);
  for (let end = 0; end <= source.length; end += 1) {
    const part = parseMarkdown(source.slice(0, end));
    const finished = part.slice(0, -1);
    assert.deepEqual(finished, whole.slice(0, finished.length), source.slice(0, end));
  }
});

test("no letter is lost and none is said twice, whatever the text", () => {
  const alphabet = ["a", "b", " ", "\n", "\n", "- ", "> ", "1. ", "#", "`", "```", "*", "|", "_", "~~", "  "];
  let state = 1;
  const draw = () => {
    state = (state * 48271) % 2147483647;
    return state;
  };
  for (let round = 0; round < 2000; round += 1) {
    const source = Array.from({ length: 30 }, () => alphabet[draw() % alphabet.length]).join("");
    const blocks = parseMarkdown(source);
    const letters = textOf(source, blocks).replace(/[^ab]/g, "");
    // What stands behind an opening fence names the language.
    const languages = (source.match(/^[ >\-*1.#\t]*(`{3,}|~{3,})[^\n]*$/gm) ?? []).join("");
    if (/[ab]/.test(languages)) continue;
    assert.equal(letters, source.replace(/[^ab]/g, ""), JSON.stringify(source));
  }
});

test("deep nesting ends, and long texts are quick", () => {
  parseMarkdown("> ".repeat(5000) + "a");
  parseMarkdown("- ".repeat(5000) + "a");
  const begun = performance.now();
  parseMarkdown("*a ".repeat(20_000));
  parseMarkdown("[".repeat(20_000) + "](".repeat(20_000));
  parseMarkdown("`a``".repeat(10_000));
  parseMarkdown("a|".repeat(20_000) + "\n" + "-|".repeat(20_000));
  assert.ok(performance.now() - begun < 5000);
});
