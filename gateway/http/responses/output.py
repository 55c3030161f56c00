"""The items of a response's output, and the events of each: message, function call, reasoning."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.calls.tools import Call
from gateway.engine.requests import TokenLogprob
from gateway.http.backend import Vocabulary
from gateway.http.logprobs import described, token_text

Made = tuple[str, dict[str, Any]]
"""An event: its type and its fields, all but the number."""


class Item(ABC):
    """One item, at `index` of the output: its events, and what it is by now."""

    kind: str

    def __init__(self, index: int) -> None:
        self.id = new_id(self.kind)
        self._index = index

    @abstractmethod
    def document(self, status: str) -> dict[str, Any]: ...

    @abstractmethod
    def begin(self) -> Iterator[Made]: ...

    @abstractmethod
    def end(self, status: str) -> Iterator[Made]: ...

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self._index}

    def _added(self, item: Mapping[str, Any]) -> Made:
        return "response.output_item.added", {"output_index": self._index, "item": item}

    def _done(self, status: str) -> Made:
        item = self.document(status)
        return "response.output_item.done", {"output_index": self._index, "item": item}


class Said(Item):
    """A message, and a thought: an item with one part of text."""

    _text_event: str

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def begin(self) -> Iterator[Made]:
        yield self._added({**self.document("in_progress"), "content": []})
        yield "response.content_part.added", {**self._part_place(), "part": self._part("", ())}

    def delta(self, text: str) -> Made:
        self._texts.append(text)
        return f"{self._text_event}.delta", {**self._part_place(), "delta": text}

    def end(self, status: str) -> Iterator[Made]:
        (part,) = self.document(status)["content"]
        done = {**self._part_place(), "text": self.text, **self._extras()}
        yield f"{self._text_event}.done", done
        yield "response.content_part.done", {**self._part_place(), "part": part}
        yield self._done(status)

    def _part_place(self) -> dict[str, Any]:
        return {**self._place(), "content_index": 0}

    def _extras(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _part(self, text: str, logprobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]: ...


class MessageItem(Said):
    kind = "msg"
    _text_event = "response.output_text"

    def __init__(self, index: int, vocabulary: Vocabulary) -> None:
        super().__init__(index)
        self._vocabulary = vocabulary
        self._logprobs: list[TokenLogprob] = []

    def scored(self, text: str, logprobs: Sequence[TokenLogprob]) -> Made:
        """A delta with the log-probabilities of its tokens."""
        self._logprobs.extend(logprobs)
        kind, fields = self.delta(text)
        return kind, {**fields, "logprobs": [brief(each, self._vocabulary) for each in logprobs]}

    def document(self, status: str) -> dict[str, Any]:
        logprobs = [described(entry, self._vocabulary) for entry in self._logprobs]
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [self._part(self.text, logprobs)],
        }

    def _extras(self) -> dict[str, Any]:
        return {"logprobs": [brief(entry, self._vocabulary) for entry in self._logprobs]}

    def _part(self, text: str, logprobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "type": "output_text",
            "text": text,
            "annotations": [],
            "logprobs": list(logprobs),
        }


class ReasoningItem(Said):
    kind = "rs"
    _text_event = "response.reasoning_text"

    def document(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "reasoning",
            "status": status,
            "summary": [],
            "content": [self._part(self.text, ())],
        }

    def _part(self, text: str, logprobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": text}


class CallItem(Item):
    kind = "fc"

    def __init__(self, index: int, call_id: str, name: str) -> None:
        super().__init__(index)
        self._call_id = call_id
        self._name = name
        self._arguments: list[str] = []

    @property
    def call(self) -> Call:
        return Call(self._call_id, self._name, "".join(self._arguments))

    def document(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self.call.arguments,
        }

    def begin(self) -> Iterator[Made]:
        yield self._added(self.document("in_progress"))

    def delta(self, arguments: str) -> Made:
        self._arguments.append(arguments)
        kind = "response.function_call_arguments.delta"
        return kind, {**self._place(), "delta": arguments}

    def end(self, status: str) -> Iterator[Made]:
        call = self.call
        yield (
            "response.function_call_arguments.done",
            {**self._place(), "name": call.name, "arguments": call.arguments},
        )
        yield self._done(status)


def brief(entry: TokenLogprob, vocabulary: Vocabulary) -> dict[str, Any]:
    """The events have no bytes where the finished part does."""
    return {
        "token": token_text(entry.id, vocabulary),
        "logprob": entry.logprob,
        "top_logprobs": [
            {"token": token_text(token, vocabulary), "logprob": logprob}
            for token, logprob in entry.top
        ],
    }


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"
