// Markdown within a line: emphasis by CommonMark's examples, code, links, and what is only text.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseInlines } from "../../gateway/page/inlines.js";
import { splitLines } from "../../gateway/page/lines.js";
import { hrefOf } from "../../gateway/page/links.js";
import { inlineOutline } from "./outline.mjs";

const CASES = [
  ["*a* **b** ***c***", "<em>a</em> <strong>b</strong> <em><strong>c</strong></em>"],
  ["_a_ __b__ snake_case_name", "<em>a</em> <strong>b</strong> snake_case_name"],
  ["a * b * c", "a * b * c"],
  ["**a", "**a"],
  ["**a*", "*<em>a</em>"],
  ["*a **b***", "<em>a <strong>b</strong></em>"],
  ["**a *b* c**", "<strong>a <em>b</em> c</strong>"],
  ["*foo**bar**baz*", "<em>foo<strong>bar</strong>baz</em>"],
  ["foo*bar*", "foo<em>bar</em>"],
  ["*(*a*)*", "<em>(<em>a</em>)</em>"],
  ["2*3*4 and 5 * 6", "2<em>3</em>4 and 5 * 6"],
  ["~~a~~ ~b~ ~~~c~~~", "<del>a</del> ~b~ ~~~c~~~"],
  ["`a` ``b`c`` ` d ` `", "`a` `b`c` `d` `"],
  ["`*a*` *`b`*", "`*a*` <em>`b`</em>"],
  ["`a\nb`", "`a·b`"],
  ["`open", "`open"],
  ["\\*a\\* \\a \\\\", "*a* \\a \\"],
  ["a\nb", "a/b"],
  ["a\\\nb", "a/b"],
  ["[a](https://b.example/c)", "[a](https://b.example/c)"],
  ["[a *b*](<https://c.example> \"title\")", "[a <em>b</em>](https://c.example/)"],
  ["![cat](https://b.example/cat.png)", "[cat](https://b.example/cat.png)"],
  ["[a](https://b.example/(c)) d", "[a](https://b.example/(c)) d"],
  ["[a](javascript:alert(1))", "[a](null)"],
  ["[a](/relative)", "[a](null)"],
  ["[a] (b) [c]: d", "[a] (b) [c]: d"],
  ["[a [b](https://c.example) d](https://e.example)", "[a [b](https://c.example/) d]([https://e.example](https://e.example/))"],
  ["<https://a.example>", "[https://a.example](https://a.example/)"],
  ["<b onclick=x>", "<b onclick=x>"],
  ["see https://a.example/b_c_d, or (http://e.example).", "see [https://a.example/b_c_d](https://a.example/b_c_d), or ([http://e.example](http://e.example/))."],
  ["https://a.example/(b)", "[https://a.example/(b)](https://a.example/(b))"],
  ["xhttps://a.example", "xhttps://a.example"],
  ["!important [", "!important ["],
  ["*é*ü", "<em>é</em>ü"],
  ["", ""],
];

for (const [source, expected] of CASES) {
  test(JSON.stringify(source), () => {
    assert.equal(inlineOutline(source, parseInlines(splitLines(source))), expected);
  });
}

test("places in the source are right on every line, whatever was taken off before", () => {
  const source = "> one *two\n> three* `four\n> five` six";
  const lines = splitLines(source).map(({ from, text }) => ({ from: from + 2, text: text.slice(2) }));
  assert.equal(
    inlineOutline(source, parseInlines(lines)),
    "one <em>two/three</em> `four·five` six",
  );
});

test("neighbouring texts are one node", () => {
  const [first, ...others] = parseInlines(splitLines("the house has [no] doors"));
  assert.deepEqual(first, { type: "text", from: 0, to: 24 });
  assert.equal(others.length, 0);
});

test("only addresses of the web and of mail may be followed", () => {
  assert.equal(hrefOf("mailto:a@b.example"), "mailto:a@b.example");
  for (const address of ["data:text/html,x", "file:///etc/passwd", "vbscript:x", "a.example", " "]) {
    assert.equal(hrefOf(address), null);
  }
});
