// Markdown that grows at its end: what cannot change any more is read once.

import { parseLines } from "./blocks.js";
import { splitLines } from "./lines.js";

// Where a block ends is known from the line that the next one begins with and the one behind it.
const LINES_BEHIND = 2;
const PAGE_HEADINGS = 3;

export class GrowingMarkdown {
  constructor() {
    this.forget();
  }

  forget() {
    this.settled = 0;
    this.begin = 0;
    this.known = "";
    this.depth = PAGE_HEADINGS;
  }

  // Read `source`: { settled, blocks }, how many blocks at its beginning are as they were, and those
  // behind them. Headings have `shown`, the level to show them with.
  read(source) {
    if (!source.startsWith(this.known)) this.forget();
    const { settled } = this;
    const lines = splitLines(source, this.begin);
    const blocks = stepwise(parseLines(lines), this.depth);
    this.#settle(source, blocks, lines.length);
    return { settled, blocks };
  }

  #settle(source, blocks, lines) {
    let count = 0;
    while (count + 1 < blocks.length && blocks[count + 1].line + LINES_BEHIND < lines) count += 1;
    if (count === 0) return;
    this.settled += count;
    this.begin = blocks[count].from;
    this.known = source.slice(0, this.begin);
    this.depth = blocks.slice(0, count).findLast(isHeading)?.shown ?? this.depth;
  }
}

// Headings below those of the page, none of which is more than one step below the one before.
function stepwise(blocks, depth) {
  let before = depth;
  for (const block of blocks.filter(isHeading)) {
    block.shown = Math.min(6, block.level + PAGE_HEADINGS, before + 1);
    before = block.shown;
  }
  return blocks;
}

function isHeading({ type }) {
  return type === "heading";
}
