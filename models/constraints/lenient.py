"""A guide that lets go: where its grammar cannot be followed any further, the answer is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from models.constraints.allowed import Allowed
from models.constraints.guide import Branch, Grammar, Guide
from models.constraints.source import ConstraintSource
from models.errors import UserError

T = TypeVar("T")
Path = tuple[int, ...]


class LenientGuide(Guide):
    """Where the grammar meets one of its limits, every token may come, there and behind it.

    That goes by the place: where the answer goes another way than a draft that was looked at, the
    grammar still holds. `_lost` are the places, as the tokens ahead of the committed ones. Which
    they are is no function of the tokens alone: limits are on work, and what was done is kept.
    """

    def __init__(self, grammar: Grammar, source: ConstraintSource) -> None:
        super().__init__(grammar, source)
        self._all = Allowed(np.ones(grammar.vocab_size, np.bool_))
        self._lost: set[Path] = set()

    @property
    def complete(self) -> bool:
        return self._asked((), lambda: super(LenientGuide, self).complete, False)

    def only(self, ahead: Sequence[int] = ()) -> int | None:
        return self._asked(ahead, lambda: super(LenientGuide, self).only(ahead), None)

    def allows(self, token: int, ahead: Sequence[int] = ()) -> bool:
        return self._asked(ahead, lambda: super(LenientGuide, self).allows(token, ahead), True)

    def allowed(self, ahead: Sequence[int] = ()) -> Allowed:
        return self._asked(ahead, lambda: super(LenientGuide, self).allowed(ahead), self._all)

    def commit(self, tokens: Sequence[int]) -> None:
        self._asked(tokens, lambda: super(LenientGuide, self).commit(tokens), None)
        if self._is_lost(tokens):
            self._lost = {()}
        count, passed = len(tokens), tuple(tokens)
        if () not in self._lost:
            self._lost = {path[count:] for path in self._lost if path[:count] == passed}

    def valid(self, tokens: Sequence[int]) -> int:
        """Of a draft that goes beyond a lost place no more than the grammar still knows."""
        if self._is_lost(()):
            return len(tokens)
        return self._tried(lambda: super(LenientGuide, self).valid(tokens), 0)

    def forced(self, behind: Sequence[int] = ()) -> list[int]:
        if self._is_lost(behind):
            return []
        return self._tried(lambda: super(LenientGuide, self).forced(behind), [])

    def branch(self) -> Branch:
        anywhere: Branch = Anywhere()
        return anywhere if self._is_lost(()) else self._tried(super().branch, anywhere)

    def _asked(self, ahead: Sequence[int], ask: Callable[[], T], free: T) -> T:
        """What the grammar says of the place behind `ahead`; `free` where it is lost."""
        if self._is_lost(ahead):
            return free
        try:
            return ask()
        except UserError:
            self._lost.add(tuple(ahead))
            self._turn_back()
            return free

    def _tried(self, ask: Callable[[], T], unknown: T) -> T:
        """What is asked for drafts alone loses no place: answers do not depend on drafts."""
        try:
            return ask()
        except UserError:
            self._turn_back()
            return unknown

    def _is_lost(self, ahead: Sequence[int]) -> bool:
        return any(tuple(ahead[: len(path)]) == path for path in self._lost)

    def _turn_back(self) -> None:
        """A matcher that has failed says nothing any more."""
        try:
            self._begin_anew()
        except UserError:
            self._lost = {()}


class Anywhere(Branch):
    """Behind which everything is valid."""

    def __init__(self) -> None:
        """There is no matcher."""

    def after(self, token: int) -> Branch | None:
        return self
