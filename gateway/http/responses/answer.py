"""From a validated request to its events: the one stream that all transports encode."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable

from gateway.engine.conversation import Prompt, Turn
from gateway.engine.requests import Delta, Event, PromptScored
from gateway.http.backend import Generation, Vocabulary
from gateway.http.errors import wire_error
from gateway.http.responses.events import ResponseEvents, ServerEvent
from models.errors import UserError
from models.tokenizer import StreamDecoder

log = logging.getLogger(__name__)


class Answer:
    """One response while it runs.

    `ended` is called once, with the turn to keep, or None when the answer failed; it is called
    before the last event is out, so that a client may continue as soon as it reads that event.
    """

    def __init__(
        self,
        generation: Generation,
        prompt: Prompt,
        events: ResponseEvents,
        vocabulary: Vocabulary,
        ended: Callable[[str, Turn | None], None],
    ) -> None:
        self._generation = generation
        self._prompt = prompt
        self._events = events
        self._vocabulary = vocabulary
        self._ended = ended
        self._ids: list[int] = []

    @property
    def id(self) -> str:
        return self._events.id

    def cancel(self) -> None:
        """End soon, as `response.incomplete` with status `cancelled`."""
        self._generation.cancel()

    async def events(self) -> AsyncGenerator[ServerEvent]:
        """From `response.created` to the last event. Closing it early cancels the generation."""
        try:
            async with self._generation as generation:
                for begun in self._events.begin():
                    yield begun
                async for event in generation:
                    for made in self._made(event):
                        yield made
        except Exception as error:
            if not isinstance(error, UserError):
                log.exception("response %s failed", self.id)
            self._ended(self.id, None)
            for failed in self._events.fail(wire_error(error)):
                yield failed

    def _made(self, event: Event) -> list[ServerEvent]:
        assert not isinstance(event, PromptScored), "no response asks for it"
        if isinstance(event, Delta):
            self._ids.extend(event.ids)
            return list(self._events.delta(event))
        self._ended(self.id, self._turn(cut=isinstance(event.stop, str)))
        return list(self._events.finish(event))

    def _turn(self, cut: bool) -> Turn:
        """What a continuation begins with. A stop string may have `cut` the last token: it is
        left out of what was seen, and what is left of its text is encoded anew."""
        turn = self._prompt.answered(self._events.text, self._ids)
        if not cut:
            return turn
        ids = list(self._ids)
        while not self._events.text.startswith(seen := self._decoded(ids)):
            ids.pop()
        return dataclasses.replace(
            turn, text=self._prompt.text + seen, ids=(*self._prompt.ids, *ids)
        )

    def _decoded(self, ids: list[int]) -> str:
        stream = StreamDecoder(self._vocabulary)
        return stream.push(ids) + stream.finish()
