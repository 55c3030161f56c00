"""Whose turn it is: waiting keys take turns, and those of one key come in order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
Key = Hashable

MOST_KEYS = 1024
"""Keys whose last turn is remembered; one forgotten counts as one that never had a turn."""


class Turns(Generic[Item]):
    """Those who wait. The next one is of the key whose last turn is longest ago: a key waits for
    one turn of each other key at most, however many of theirs came before."""

    def __init__(self) -> None:
        self._waiting: dict[Key, deque[Item]] = {}
        self._served: dict[Key, int] = {}
        self._turn = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Item]:
        for items in self._waiting.values():
            yield from items

    def add(self, key: Key, item: Item) -> None:
        self._waiting.setdefault(key, deque()).append(item)

    def remove(self, key: Key, item: Item) -> bool:
        """Whether it waited."""
        items = self._waiting.get(key)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._drop_if_empty(key)
        return True

    def pop(self) -> Item:
        """Take who is next; who in fact gets something is then said to be `served`."""
        # Of keys whose turn is equally long ago (never) the one that waits longest is first here.
        key = min(self._waiting, key=lambda each: self._served.get(each, 0))
        item = self._waiting[key].popleft()
        self._drop_if_empty(key)
        return item

    def served(self, key: Key) -> None:
        """`key` had a turn, also where it did not wait for it."""
        self._turn += 1
        self._served.pop(key, None)
        self._served[key] = self._turn
        if len(self._served) > MOST_KEYS:
            del self._served[next(iter(self._served))]

    def _drop_if_empty(self, key: Key) -> None:
        if not self._waiting[key]:
            del self._waiting[key]
