"""Responses that can be had again: while they run, and for a while after."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.http.fields import short
from gateway.http.responses.answer import Answer
from gateway.http.responses.events import ServerEvent
from gateway.http.responses.journal import Entry, Journal
from models.errors import UserError

MOST_KEPT = 256
MOST_BYTES = 64 << 20
"""Of the events of all responses together; those that ended first are forgotten first."""


class Kept:
    """One response; `owner` is whose it is."""

    def __init__(self, answer: Answer, owner: str | None) -> None:
        self.id = answer.id
        self.owner = owner
        self.journal = Journal()
        self._answer: Answer | None = answer
        self._response: dict[str, Any] = {}

    @property
    def running(self) -> bool:
        return self._answer is not None

    @property
    def response(self) -> dict[str, Any]:
        """The response object as it is now."""
        return self._response if self._answer is None else self._answer.snapshot()

    def cancel(self) -> None:
        """End soon, if it has not ended."""
        if self._answer is not None:
            self._answer.cancel()

    def add(self, event: ServerEvent) -> Entry:
        entry = Entry.of(event)
        self.journal.append(entry)
        return entry

    def end(self) -> None:
        """Whoever generated it stopped. A response that was left in the middle is cancelled."""
        assert self._answer is not None, "a response ends once"
        for event in self._answer.abandon():
            self.add(event)
        self._response, self._answer = self._answer.snapshot(), None
        self.journal.end()


class KeptResponses:
    """By their ids. What ended is forgotten after `seconds`, and where more is kept than fits."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._kept: dict[str, Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, response_id: str) -> bool:
        return response_id in self._kept

    def begin(self, answer: Answer, owner: str | None) -> Kept:
        kept = self._kept[answer.id] = Kept(answer, owner)
        return kept

    def end(self, kept: Kept) -> None:
        kept.end()
        if self._kept.pop(kept.id, None) is None:
            return  # deleted meanwhile
        self._kept[kept.id] = kept
        asyncio.get_running_loop().call_later(self._seconds, self._forget, kept.id)
        self._make_room()

    def find(self, response_id: str, owner: str | None) -> Kept:
        """Raises `UserError` (`response_not_found`), also where it is somebody else's."""
        kept = self._kept.get(response_id)
        if kept is None or kept.owner != owner:
            raise UserError(
                f"No response {short(response_id)!r} is kept here.",
                code="response_not_found",
                param="response_id",
            )
        return kept

    def delete(self, response_id: str, owner: str | None) -> None:
        """Forget it; where it runs it ends."""
        kept = self.find(response_id, owner)
        del self._kept[response_id]
        kept.cancel()

    def _make_room(self) -> None:
        """Of those that ended, which are in the order in which they did."""
        ended = [kept for kept in self._kept.values() if not kept.running]
        held = sum(kept.journal.bytes for kept in self._kept.values())
        while ended and (len(self._kept) > MOST_KEPT or held > MOST_BYTES):
            oldest = ended.pop(0)
            held -= oldest.journal.bytes
            self._forget(oldest.id)

    def _forget(self, response_id: str) -> None:
        self._kept.pop(response_id, None)
