"""From a validated request to its events: the one stream that all transports encode."""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

from gateway.engine.conversation import Prompt, Turn
from gateway.engine.requests import Delta, Event, PromptScored
from gateway.http.backend import Generation, Vocabulary
from gateway.http.errors import WireError, wire_error
from gateway.http.responses.events import ResponseEvents, ServerEvent
from models.errors import UserError
from models.tokenizer import StreamDecoder

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """Whose response it is, whether it can be had again, whether it goes on without a reader."""

    owner: str | None = None
    store: bool = False
    background: bool = False


ANONYMOUS = Terms()


class Answer:
    """One response while it runs; `failure` is what it failed with.

    The argument `ended` is called once, with the turn to keep, or None when the answer failed; it
    is called before the last event is out, so that a client may continue as soon as it reads that
    event.
    """

    def __init__(
        self,
        generation: Generation,
        prompt: Prompt,
        events: ResponseEvents,
        vocabulary: Vocabulary,
        ended: Callable[[str, Turn | None], None],
        terms: Terms = ANONYMOUS,
        *,
        plain: bool = True,
    ) -> None:
        """`plain`: the answer is nothing but text."""
        self._generation = generation
        self._prompt = prompt
        self._events = events
        self._vocabulary = vocabulary
        self._ended = ended
        self.terms = terms
        self.failure: WireError | None = None
        self._plain = plain
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._made: deque[ServerEvent] = deque()

    @property
    def id(self) -> str:
        return self._events.id

    def cancel(self) -> None:
        """End soon, as `response.incomplete` with status `cancelled`."""
        self._generation.cancel()

    @property
    def ended(self) -> bool:
        return self._events.ended

    def snapshot(self) -> dict[str, Any]:
        """The response object with what was said so far."""
        return self._events.snapshot()

    def abandon(self) -> Iterator[ServerEvent]:
        """The rest of the events, where nobody reads them: those that were made, or a cut."""
        yield from self._made
        self._made.clear()
        if not self.ended:
            yield from self._events.abandon()

    async def events(self) -> AsyncGenerator[ServerEvent]:
        """From `response.created` to the last event. Closing it early cancels the generation."""
        try:
            async with self._generation as generation:
                self._made.extend(self._events.begin())
                while self._made:
                    yield self._made.popleft()
                async for event in generation:
                    self._made.extend(self._events_of(event))
                    while self._made:
                        yield self._made.popleft()
        except Exception as error:
            if not isinstance(error, UserError):
                log.exception("response %s failed", self.id)
            self._ended(self.id, None)
            self.failure = wire_error(error)
            self._made.extend(self._events.fail(self.failure))
            while self._made:
                yield self._made.popleft()

    def _events_of(self, event: Event) -> Iterator[ServerEvent]:
        assert not isinstance(event, PromptScored), "no response asks for it"
        if isinstance(event, Delta):
            self._ids.extend(event.ids)
            self._texts.append(event.text)
            return self._events.delta(event)
        last = list(self._events.finish(event))
        # Behind a call that was to be the only one too.
        cut = isinstance(event.stop, str) or (event.reason == "stop" and not self._plain)
        self._ended(self.id, self._turn(cut=cut))
        return iter(last)

    def _turn(self, cut: bool) -> Turn:
        """What a continuation begins with: where nothing was to be said, the prompt's messages. The
        end may have `cut` the last token: it is then left out of what was seen, and what is left of
        its text is encoded anew."""
        if not self._events.generates:
            return Turn(self._prompt.messages, self._prompt.text, self._prompt.ids)
        text = "".join(self._texts)
        message = None if self._plain else self._events.message
        turn = self._prompt.answered(text, self._ids, message)
        if not cut:
            return turn
        ids = list(self._ids)
        while not text.startswith(seen := self._decoded(ids)):
            ids.pop()
        return dataclasses.replace(
            turn, text=self._prompt.text + seen, ids=(*self._prompt.ids, *ids)
        )

    def _decoded(self, ids: list[int]) -> str:
        shown = self._generation.request.shown_ids
        stream = StreamDecoder(self._vocabulary, shown=shown)
        return stream.push(ids) + stream.finish()
