"""The events of one response as they were sent, for whoever reads them later or again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import NamedTuple

import orjson

from gateway.http.fields import invalid
from gateway.http.responses.events import ServerEvent
from models.errors import UserError

MOST_DIGITS = 9
DIGITS = re.compile(f"[0-9]{{1,{MOST_DIGITS}}}")
MOST_BYTES = 4 << 20
"""Events of one response that are kept; the oldest are forgotten first."""

OVERHEAD = 256
"""Bytes of an entry beside its JSON, about."""


class Entry(NamedTuple):
    """An event's number, its type, and its JSON, which is made once for all who read it."""

    number: int
    type: str
    body: bytes

    @classmethod
    def of(cls, event: ServerEvent) -> Entry:
        return cls(event.sequence_number, event.type, orjson.dumps(event.document()))

    @property
    def weight(self) -> int:
        """Bytes that it takes to keep."""
        return len(self.body) + OVERHEAD

    def on_lane(self, stream_id: str | None) -> bytes:
        """The JSON with the `stream_id` of a socket's lane."""
        if stream_id is None:
            return self.body
        return b'%b,"stream_id":%b}' % (self.body[:-1], orjson.dumps(stream_id))


class Journal:
    """Written by whoever generates, read by any number of readers, each at its own pace."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._entries: dict[int, Entry] = {}
        self._readers: set[asyncio.Future[None]] = set()
        self._next = 0
        self._ended = False
        self.bytes = 0

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def last(self) -> int:
        """Number of the newest event; -1 where there is none yet."""
        return self._next - 1

    def require(self, after: int) -> None:
        """Raise `UserError` (`events_expired`) where not all behind `after` are kept any more, or
        where there will be no event of that number."""
        if self._ended and after > self.last:
            raise invalid("starting_after", f"is {after}; the last event is number {self.last}")
        if self._entries and after + 1 < next(iter(self._entries)):
            raise _expired(next(iter(self._entries)))

    def append(self, entry: Entry) -> None:
        assert entry.number == self._next, "events come in order"
        assert not self._ended, "nothing follows the end"
        self._entries[self._next] = entry
        self._next += 1
        self.bytes += entry.weight
        while self.bytes > self._most_bytes and len(self._entries) > 1:
            oldest = next(iter(self._entries))
            self.bytes -= self._entries.pop(oldest).weight
        self._wake()

    def end(self) -> None:
        """No event follows."""
        self._ended = True
        self._wake()

    async def read(self, after: int = -1) -> AsyncGenerator[Entry]:
        """The events behind number `after`, to the last.

        Raises `UserError` (`events_expired`) where some of them are not kept any more.
        """
        self.require(after)
        wanted = after + 1
        while True:
            while wanted < self._next:
                entry = self._entries.get(wanted)
                if entry is None:
                    raise _expired(next(iter(self._entries)))
                yield entry
                wanted += 1
            if self._ended:
                return
            await self._grown()

    async def _grown(self) -> None:
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.add(reader)
        try:
            await reader
        finally:
            self._readers.discard(reader)

    def _wake(self) -> None:
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)


def starting_after(value: object) -> int:
    """A sequence number as a query or a message has it; -1 where there is none.

    Raises `UserError` that names the field.
    """
    if value is None:
        return -1
    if isinstance(value, str) and DIGITS.fullmatch(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**MOST_DIGITS:
        return value
    raise invalid("starting_after", "must be the number of an event")


def _expired(first: int) -> UserError:
    return UserError(
        f"Events before number {first} of this response are not kept any more.",
        code="events_expired",
        param="starting_after",
    )
