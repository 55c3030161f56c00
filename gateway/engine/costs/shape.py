"""The shape of a target run: what its time depends on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from models.rows import LEAST_WIDTH


class RunShape(NamedTuple):
    """`rows` of the run with `tokens` in all; `past` is the sum over rows of cached tokens, `work`
    that of cached tokens times the row's own, of which the kernel sees two at least. `tree`: not
    all rows are chains."""

    rows: int
    tokens: int
    past: int = 0
    work: int = 0
    tree: bool = False

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int]], tree: bool = False) -> RunShape:
        """From (cached, tokens) of every row."""
        count = width = past = work = 0
        for cached, tokens in rows:
            count += 1
            width += tokens
            past += cached
            work += cached * max(tokens, LEAST_WIDTH)
        return cls(count, width, past, work, tree)

    def with_tokens(self, extra: int, cached: int, tree: bool = False) -> RunShape:
        """With one more row, of `extra` tokens behind `cached` ones."""
        rows, tokens, past, work, branched = self
        work += cached * max(extra, LEAST_WIDTH)
        return RunShape(rows + 1, tokens + extra, past + cached, work, branched or tree)

    def also(self, other: RunShape) -> RunShape:
        """With the rows of `other`."""
        return RunShape(
            self.rows + other.rows,
            self.tokens + other.tokens,
            self.past + other.past,
            self.work + other.work,
            self.tree or other.tree,
        )


NOBODY = RunShape(0, 0)


class Load(NamedTuple):
    """What a request's row joins: the rows of the `others`; it follows `cached` tokens itself."""

    others: RunShape = NOBODY
    cached: int = 0

    @property
    def rows(self) -> int:
        """Everybody who waits for the run."""
        return self.others.rows + 1

    def run(self, tokens: int, tree: bool = False) -> RunShape:
        """The run where the request's own row has so many tokens."""
        return self.others.with_tokens(tokens, self.cached, tree)
