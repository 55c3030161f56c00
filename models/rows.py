"""Rows: what a request asks of a run, what it gets, and how rows are packed into one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.slots import Slot
from models.trees import depths, is_chain
from models.workspace import Window

LEAST_WIDTH = 2
"""Tokens a run and a row must have at least: the CPU kernels for one token are not bitwise equal
to those for two and more, and with one width rule every provider runs the same code."""

NARROW = 16
"""Rows wider than this are padded to an even width. The CPU attention kernel works through a row
in blocks of queries (128 at head_dim 64, fewer where the cache is small), and a last block of one
query takes the kernel for one token."""


@dataclass(slots=True, eq=False)
class Row:
    """One request's tokens in a run, written behind the committed tokens of `slot`.

    `logits` of the last tokens' outputs are wanted (0 for an inner prefill chunk). `parents` makes
    the row a tree: the index of the token that each follows, -1 for the first, which is the last
    committed token; where each follows the one before, the row is a chain like any other and
    `parents` becomes None. `past` is where the row begins: taken when the row is made, since a
    cancelled request's slot may have another owner, and another length, by the time its row runs.
    """

    slot: Slot
    tokens: tuple[int, ...]
    logits: int
    parents: tuple[int, ...] | None = None
    past: int = field(init=False)

    def __post_init__(self) -> None:
        self.past = self.slot.length
        if self.parents is not None:
            assert len(self.parents) == len(self.tokens), "one parent a token"
            if is_chain(self.parents):
                self.parents = None
            else:
                # The kernel gives a prompt's first tokens their positions itself.
                assert self.past, "a tree follows a committed token"


class WantedRow(NamedTuple):
    """The logits behind one token: the K largest `values` in falling order, their `ids`, and the
    log-sum-exp of all V, so that a log-probability is `value - logsumexp`."""

    values: NDArray[np.float32]
    ids: NDArray[np.int64]
    logsumexp: float
    result: RowResult
    place: int

    @property
    def vocab_size(self) -> int:
        assert self.result.window is not None, "results of a run show whole rows"
        return self.result.window.workspace.vocab_size

    def whole(self) -> NDArray[np.float32]:
        """All logits [V]: a view, to be read before the target runs again."""
        return self.result.whole(self.place)


class RowResult(NamedTuple):
    """Per wanted token: the K largest logits [m, K] in falling order, their ids [m, K], and the
    log-sum-exp [m] of the whole row. `window` shows the whole rows until the next run."""

    top_values: NDArray[np.float32]
    top_ids: NDArray[np.int64]
    logsumexp: NDArray[np.float32]
    window: Window | None = None

    def row(self, index: int) -> WantedRow:
        return WantedRow(
            self.top_values[index], self.top_ids[index], float(self.logsumexp[index]), self, index
        )

    def whole(self, index: int) -> NDArray[np.float32]:
        """All logits [V] at a wanted position: a view, to be read before the target runs again."""
        assert self.window is not None, "results of a run show whole rows"
        assert 0 <= index < len(self.logsumexp), "whole rows of this row only"
        return self.window.whole(index)

    @property
    def greedy(self) -> list[int]:
        """The most likely token at each wanted position."""
        ids: list[int] = self.top_ids[:, 0].tolist()
        return ids


_NOWHERE = np.zeros(0, dtype=np.int64)


class Layout(NamedTuple):
    """Where the rows of a run lie: indices into the packed tokens and the gathered rows, of which
    a row alone has none.

    `positions` are those of each row's tokens in its text, `pasts` the committed tokens before it.
    """

    ids: NDArray[np.int64]
    indices: list[NDArray[np.int64]]
    positions: list[NDArray[np.int64]]
    pasts: list[int]
    unpack: NDArray[np.int64]
    logits_index: NDArray[np.int64]


def lay_out(rows: Sequence[Row], count: int) -> Layout:
    """Pack `rows` for the graph of `count` rows, padding where a lone token would meet another
    kernel.

    The pad repeats the last token one position later: causal, so the real ones do not see it, and
    never committed, so nothing sees its K/V.
    """
    if count == 1:
        return _lay_out_alone(rows[0])
    ids: list[int] = []
    indices, positions, unpack, wanted = [], [], [], []
    gathered = 0
    for row in rows:
        start, width = len(ids), len(row.tokens)
        ids.extend(row.tokens)
        span = np.arange(start, start + width)
        wanted.append(span[width - row.logits :])
        unpack.append(gathered + np.arange(width))
        padded = _padded(width)
        indices.append(span if padded == width else np.append(span, span[-1]))
        positions.append(_positions(row, padded))
        gathered += padded
    for _ in range(count - len(rows)):
        indices.append(np.zeros(LEAST_WIDTH, dtype=np.int64))
        positions.append(np.arange(LEAST_WIDTH))
    return Layout(
        ids=np.array(ids, dtype=np.int64),
        indices=indices,
        positions=positions,
        pasts=[row.past for row in rows] + [0] * (count - len(rows)),
        unpack=np.concatenate(unpack),
        logits_index=_pad_wanted(np.concatenate(wanted)),
    )


def _lay_out_alone(row: Row) -> Layout:
    """The graph of one row packs nothing and gathers nothing."""
    tokens, width = row.tokens, len(row.tokens)
    padded = _padded(width)
    ids = np.array(tokens if padded == width else (*tokens, tokens[-1]), dtype=np.int64)
    wanted = np.arange(width - row.logits, width)
    pasts = [row.past]
    return Layout(ids, [], [_positions(row, padded)], pasts, _NOWHERE, _pad_wanted(wanted))


def _positions(row: Row, padded: int) -> NDArray[np.int64]:
    if row.parents is None:
        return np.arange(row.past, row.past + padded)
    own = depths(row.parents)
    return row.past + (own if padded == own.size else np.append(own, own[-1] + 1))


def _padded(width: int) -> int:
    return width + 1 if width < LEAST_WIDTH or (width > NARROW and width % 2) else width


def _pad_wanted(wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """No LM head of one row either: the same kernel change."""
    return wanted.repeat(LEAST_WIDTH) if wanted.size == 1 else wanted
