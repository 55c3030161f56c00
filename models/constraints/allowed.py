"""The tokens that a constraint allows at one place, and what sampling asks of a constraint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Allowed:
    """Those that may come next: a flag for every token of the vocabulary [V], at least one set."""

    __slots__ = ("_ids", "count", "flags")

    def __init__(self, flags: NDArray[np.bool_]) -> None:
        self.flags = flags
        self.count = int(np.count_nonzero(flags))
        self._ids: NDArray[np.int64] | None = None

    @classmethod
    def of_bits(cls, bits: bytes, vocab_size: int) -> Allowed:
        """From one bit per token, the lowest of each byte first."""
        flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=vocab_size, bitorder="little")
        return cls(flags.view(np.bool_))

    @property
    def ids(self) -> NDArray[np.int64]:
        """Rising."""
        if self._ids is None:
            self._ids = np.flatnonzero(self.flags)
        return self._ids


class Guidance(Protocol):
    """A constraint on one answer, as far as sampling needs it.

    `ahead` are draft tokens behind the committed ones. What is allowed there depends on the tokens
    alone, so it is the same whether they were drafted or not.
    """

    def only(self, ahead: Sequence[int] = ()) -> int | None:
        """The one token that may come; None where that is not known, or there are several."""

    def allows(self, token: int, ahead: Sequence[int] = ()) -> bool:
        """Whether `token` may come where `only` knows of none."""

    def allowed(self, ahead: Sequence[int] = ()) -> Allowed:
        """All that may come."""

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` are part of the answer."""
