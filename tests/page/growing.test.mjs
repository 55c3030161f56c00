// Markdown that grows: read piece by piece it is what it is read whole, and little is read again.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseMarkdown } from "../../gateway/page/blocks.js";
import { GrowingMarkdown } from "../../gateway/page/growing.js";

const TEXT = `# One

Some **prose** that
goes on.
a|b
-|-
1|2

- one
- two

  with a paragraph

- three
1. other

\`\`\`python
x = 1

- no list
\`\`\`
> a quote
that goes on

> and one more

### Deep
text
---
* * *
- [x] done
    - inner
      more
a | b
no table

| c | d |
|:--|--:|
| 1 | 2 |
| 3 |

1) x
2) y

last line with \`code\` and [a link](https://a.example)
and its end`;

// Without the numbers of lines, which are counted from where reading began.
function bare(blocks) {
  const kept = (name, value) => (["line", "next", "shown"].includes(name) ? undefined : value);
  return JSON.parse(JSON.stringify(blocks, kept));
}

// After every step the blocks are those of the text up to there.
function grow(text, sizes) {
  const growing = new GrowingMarkdown();
  let kept = [];
  let end = 0;
  for (const size of sizes) {
    end = Math.min(text.length, end + size);
    const { settled, blocks } = growing.read(text.slice(0, end));
    kept = [...kept.slice(0, settled), ...blocks];
    assert.deepEqual(bare(kept), bare(parseMarkdown(text.slice(0, end))), JSON.stringify(text.slice(0, end)));
  }
  return { growing, kept };
}

test("character by character", () => {
  const { growing } = grow(TEXT, Array(TEXT.length).fill(1));
  assert.ok(growing.settled > 12);
});

test("in pieces of any size, with either kind of line end", () => {
  let state = 7;
  const size = () => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return 1 + (state >> 8) % 23;
  };
  for (const text of [TEXT, TEXT.replaceAll("\n", "\r\n"), `${TEXT}\n\n${TEXT}`]) {
    for (let round = 0; round < 6; round += 1) grow(text, Array.from({ length: text.length }, size));
  }
});

test("what is read again does not grow with what stands before it", () => {
  const growing = new GrowingMarkdown();
  let text = "";
  let most = 0;
  for (let count = 0; count < 500; count += 1) {
    text += `## Part ${count}\n\nA paragraph.\n\n- one\n- two\n\n`;
    most = Math.max(most, growing.read(text).blocks.length);
  }
  assert.ok(most <= 6, `${most} blocks`);
});

test("another text is read from its beginning", () => {
  const growing = new GrowingMarkdown();
  growing.read("one\n\ntwo\n\nthree\n\nfour\n\nfive");
  const { settled, blocks } = growing.read("eins\n\nzwei");
  assert.equal(settled, 0);
  assert.equal(blocks.length, 2);
});

test("headings go down by one step, whatever was settled between them", () => {
  const growing = new GrowingMarkdown();
  const text = "# a\n\nx\n\n#### b\n\ny\n\n# c\n\nz\n\n###### d\n\nx\n\n###### e\n\ny\n";
  const shown = new Map();
  for (let end = 1; end <= text.length; end += 1) {
    for (const { type, from, shown: level } of growing.read(text.slice(0, end)).blocks) {
      if (type === "heading") shown.set(from, level);
    }
  }
  assert.deepEqual([...shown.values()], [4, 5, 4, 5, 6]);
});
