"""The events of one response, in order and numbered. Transports only encode them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.engine.requests import Delta, Finished, GenerationRequest, TokenLogprob
from gateway.http.backend import Vocabulary
from gateway.http.errors import WireError
from gateway.http.logprobs import described, token_text
from gateway.http.responses.report import response_object, usage_object
from gateway.http.responses.schema import CreateResponse
from gateway.http.timings import timings_object


@dataclass(frozen=True, slots=True)
class ServerEvent:
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
    """Builds the events of one response; its text so far is in `text`.

    `opened` is what the engine made of `request`. Each of `begin`, `delta`, and one of `finish`
    and `fail` yields the events of its stage.
    """

    def __init__(
        self,
        request: CreateResponse,
        opened: GenerationRequest,
        model: str,
        vocabulary: Vocabulary,
    ) -> None:
        self.id = _new_id("resp")
        self._item_id = _new_id("msg")
        self._provenance = request.provenance
        self._vocabulary = vocabulary
        self._number = 0
        self._parts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._response = response_object(self.id, model, request, opened)

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def begin(self) -> Iterator[ServerEvent]:
        yield self._event("response.created", response=self._snapshot())
        yield self._event("response.in_progress", response=self._snapshot())
        item = {**self._item("in_progress"), "content": []}
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._event("response.content_part.added", **self._place(), part=_part(""))

    def delta(self, delta: Delta) -> Iterator[ServerEvent]:
        """Nothing for a delta that completes no character, unless its tokens were asked for
        (by log-probabilities or provenance): those of all deltas are those of the answer."""
        self._parts.append(delta.text)
        self._logprobs.extend(delta.logprobs)
        if delta.text or delta.logprobs or self._provenance:
            yield self._event(
                "response.output_text.delta",
                **self._place(),
                delta=delta.text,
                logprobs=[_brief(entry, self._vocabulary) for entry in delta.logprobs],
                **({"speculation": _provenance(delta)} if self._provenance else {}),
            )

    def finish(self, finished: Finished) -> Iterator[ServerEvent]:
        whole = finished.reason == "stop"
        yield from self._end_item("completed" if whole else "incomplete")
        self._response["usage"] = usage_object(finished.usage)
        self._response["timings"] = timings_object(finished.timings)
        self._response["stop_reason"] = finished.stop
        if whole:
            yield self._end("response.completed", "completed", completed_at=int(time.time()))
        elif finished.reason == "length":
            details = {"reason": "max_output_tokens"}
            yield self._end("response.incomplete", "incomplete", incomplete_details=details)
        else:
            # The clients' list of reasons has none for a cancellation: the status says it.
            yield self._end("response.incomplete", "cancelled")

    def fail(self, error: WireError) -> Iterator[ServerEvent]:
        yield from self._end_item("incomplete")
        yield self._end("response.failed", "failed", error=error.response_error())

    def _end_item(self, status: str) -> Iterator[ServerEvent]:
        item = self._item(status)
        (part,) = item["content"]
        brief = [_brief(entry, self._vocabulary) for entry in self._logprobs]
        yield self._event(
            "response.output_text.done", **self._place(), text=part["text"], logprobs=brief
        )
        yield self._event("response.content_part.done", **self._place(), part=part)
        yield self._event("response.output_item.done", output_index=0, item=item)
        self._response["output"] = [item]

    def _end(self, kind: str, status: str, **changed: Any) -> ServerEvent:
        self._response.update(status=status, **changed)
        return self._event(kind, response=self._snapshot())

    def _event(self, kind: str, **fields: Any) -> ServerEvent:
        event = ServerEvent(kind, self._number, fields)
        self._number += 1
        return event

    def _snapshot(self) -> dict[str, Any]:
        return dict(self._response)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    def _item(self, status: str) -> dict[str, Any]:
        logprobs = [described(entry, self._vocabulary) for entry in self._logprobs]
        return {
            "id": self._item_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [_part(self.text, logprobs)],
        }


def _part(text: str, logprobs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": list(logprobs),
    }


def _brief(entry: TokenLogprob, vocabulary: Vocabulary) -> dict[str, Any]:
    """The events have no bytes where the finished part does."""
    return {
        "token": token_text(entry.id, vocabulary),
        "logprob": entry.logprob,
        "top_logprobs": [
            {"token": token_text(token, vocabulary), "logprob": logprob}
            for token, logprob in entry.top
        ],
    }


def _provenance(delta: Delta) -> dict[str, Any]:
    """Who proposed the tokens: `source` in a word, `sources` token by token."""
    drafted = [source for source in delta.sources if source != "target"]
    return {
        "source": drafted[0] if drafted else "target",
        "sources": list(delta.sources),
        "ids": list(delta.ids),
        "round": delta.round,
        "verified": delta.verified,
    }


def _new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"
