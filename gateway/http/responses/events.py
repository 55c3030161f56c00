"""The events of one response, in order and numbered. Transports only encode them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.calls.parts import CallBegun, CallDelta, Part, Text, Thought
from gateway.calls.reading import Reading
from gateway.engine.conversation import Message
from gateway.engine.deltas import merge
from gateway.engine.requests import Delta, Finished, GenerationRequest, TokenLogprob
from gateway.http.backend import Vocabulary
from gateway.http.errors import WireError
from gateway.http.responses.output import CallItem, Item, Made, MessageItem, ReasoningItem, new_id
from gateway.http.responses.provenance import provenance
from gateway.http.responses.report import response_object, usage_object
from gateway.http.responses.schema import CreateResponse
from gateway.http.timings import timings_object


class ServerEvent(NamedTuple):
    """One event: its `type`, its number within the response, and its other fields."""

    type: str
    sequence_number: int
    fields: Mapping[str, Any]

    def document(self, stream_id: str | None = None) -> dict[str, Any]:
        document = {"type": self.type, "sequence_number": self.sequence_number, **self.fields}
        if stream_id is not None:
            document["stream_id"] = stream_id
        return document


class ResponseEvents:
    """Builds the events of one response; what it says is in `message`.

    `opened` is what the engine made of `request`; `ended` that the last event was made. Each of
    `begin`, `delta`, and one of `finish`, `fail` and `abandon` yields the events of its stage.
    Without a `reading` the response is one message, which begins at once; else its items begin as
    they come. One that `generates` nothing has none, and is complete when its prompt was read.
    """

    def __init__(
        self,
        request: CreateResponse,
        opened: GenerationRequest,
        model: str,
        vocabulary: Vocabulary,
        reading: Reading | None = None,
    ) -> None:
        self.id = new_id("resp")
        self.generates = request.generate
        self._provenance = request.provenance
        self._vocabulary = vocabulary
        self._reading = reading
        self._number = 0
        self._items: list[Item] = []
        self._open: Item | None = None
        self._untold: list[Delta] = []
        self._logprobs: list[TokenLogprob] = []
        self.ended = False
        self._response = response_object(self.id, model, request, opened)

    @property
    def message(self) -> Message:
        """What was said, thought and called."""
        items = self._items
        return Message(
            "assistant",
            "".join(item.text for item in items if isinstance(item, MessageItem)),
            calls=tuple(item.call for item in items if isinstance(item, CallItem)),
            thought="".join(item.text for item in items if isinstance(item, ReasoningItem)),
        )

    def begin(self) -> Iterator[ServerEvent]:
        yield self._event("response.created", response=self._snapshot())
        yield self._event("response.in_progress", response=self._snapshot())
        if self._reading is None and self.generates:
            yield from self._enter(MessageItem(0, self._vocabulary))

    def delta(self, delta: Delta) -> Iterator[ServerEvent]:
        """Nothing for a delta that completes nothing, unless its tokens were asked for (by
        log-probabilities or provenance) and there is only text: those of all deltas are those of
        the answer."""
        self._untold.append(delta)
        self._logprobs.extend(delta.logprobs)
        if self._reading is not None:
            yield from self._tell(self._reading.push(delta))
        elif delta.text or delta.logprobs or self._provenance:
            yield from self._tell([Text(delta.text)])

    def finish(self, finished: Finished) -> Iterator[ServerEvent]:
        """A response with a call that broke off is not complete, however it ended."""
        whole = finished.reason == "stop" or (finished.reason == "length" and not self.generates)
        thought_tokens = 0
        if self._reading is not None:
            yield from self._tell(self._reading.finish())
            thought_tokens = self._reading.thought_tokens
            whole = whole and not self._reading.cut
        if not self._items and self.generates:
            yield from self._enter(MessageItem(0, self._vocabulary))
        yield from self._leave("completed" if whole else "incomplete")
        self._response["usage"] = usage_object(finished.usage, thought_tokens)
        self._response["timings"] = timings_object(finished.timings)
        self._response["stop_reason"] = finished.stop
        if whole:
            yield self._end("response.completed", "completed", completed_at=int(time.time()))
        elif finished.reason == "length":
            details = {"reason": "max_output_tokens"}
            yield self._end("response.incomplete", "incomplete", incomplete_details=details)
        elif finished.reason == "stop":
            # Nor has it one for what the model itself broke off.
            yield self._end("response.incomplete", "incomplete")
        else:
            # The clients' list of reasons has none for a cancellation: the status says it.
            yield self._end("response.incomplete", "cancelled")

    def fail(self, error: WireError) -> Iterator[ServerEvent]:
        yield from self._leave("incomplete")
        yield self._end("response.failed", "failed", error=error.response_error())

    def abandon(self) -> Iterator[ServerEvent]:
        """Nobody reads it any more: it ends where it is."""
        if self._number == 0:
            yield from self.begin()
        yield from self._leave("incomplete")
        yield self._end("response.incomplete", "cancelled")

    def snapshot(self) -> dict[str, Any]:
        """The response as it is, with what was said so far."""
        if self.ended or self._open is None:
            return self._snapshot()
        said = [*self._response["output"], self._open.document("in_progress")]
        return {**self._snapshot(), "output": said}

    def _tell(self, parts: Sequence[Part]) -> Iterator[ServerEvent]:
        for part in parts:
            if isinstance(part, Text):
                yield from self._enter_kind(MessageItem)
                assert isinstance(self._open, MessageItem), "entered just now"
                yield self._progress(self._open.scored(part.text, self._logprobs))
                self._logprobs = []
            elif isinstance(part, Thought):
                yield from self._enter_kind(ReasoningItem)
                assert isinstance(self._open, ReasoningItem), "entered just now"
                yield self._progress(self._open.delta(part.text))
            elif isinstance(part, CallBegun):
                yield from self._leave("completed")
                yield from self._enter(CallItem(len(self._items), part.id, part.name))
            elif isinstance(part, CallDelta):
                assert isinstance(self._open, CallItem), "a call begins before its arguments"
                yield self._progress(self._open.delta(part.arguments))
            else:
                yield from self._leave("completed" if part.whole else "incomplete")
            if not isinstance(part, Text):
                self._logprobs = []  # told with what is said alone

    def _enter_kind(self, kind: type[MessageItem] | type[ReasoningItem]) -> Iterator[ServerEvent]:
        """Have an item of this kind open."""
        if isinstance(self._open, kind):
            return
        yield from self._leave("completed")
        index = len(self._items)
        if kind is MessageItem:
            yield from self._enter(MessageItem(index, self._vocabulary))
        else:
            yield from self._enter(ReasoningItem(index))

    def _enter(self, item: Item) -> Iterator[ServerEvent]:
        self._open = item
        self._items.append(item)
        yield from map(self._made, item.begin())

    def _leave(self, status: str) -> Iterator[ServerEvent]:
        """End the item that is open, if one is."""
        item, self._open = self._open, None
        if item is not None:
            yield from map(self._made, item.end(status))
            self._response["output"] = [*self._response["output"], item.document(status)]

    def _progress(self, made: Made) -> ServerEvent:
        """A delta, with where the tokens since the last one came from where that was asked for."""
        untold, self._untold = self._untold, []
        event = self._made(made)
        if not (self._provenance and untold):
            return event
        fields = {**event.fields, "speculation": provenance(merge(untold))}
        return ServerEvent(event.type, event.sequence_number, fields)

    def _end(self, kind: str, status: str, **changed: Any) -> ServerEvent:
        self._response.update(status=status, **changed)
        self.ended = True
        return self._event(kind, response=self._snapshot())

    def _made(self, made: Made) -> ServerEvent:
        kind, fields = made
        return self._event(kind, **fields)

    def _event(self, kind: str, **fields: Any) -> ServerEvent:
        event = ServerEvent(kind, self._number, fields)
        self._number += 1
        return event

    def _snapshot(self) -> dict[str, Any]:
        return dict(self._response)
