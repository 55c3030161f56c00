"""The types of openai-python, taken at their word.

`validate_*` wants every field that a type requires, each of its type, and nothing beside them but
what is documented as ours (docs/RESPONSES.md, docs/COMPLETIONS.md): the clients themselves accept
anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

from openai.types import Completion, CompletionChoice, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat import chat_completion as whole_chat
from openai.types.chat import chat_completion_chunk as streamed_chat
from openai.types.responses import (
    Response,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)
from openai.types.responses.compacted_response import CompactedResponse
from openai.types.responses.responses_server_event import ResponsesServerEvent, ResponseWsError
from pydantic import BaseModel

_ENDING = frozenset({"seed", "stop_reason", "timings"})
# Open Responses requires the two penalties and `store` of a response, which the type lacks.
_SAMPLING = frozenset(
    {
        "frequency_penalty",
        "ignore_eos",
        "logit_bias",
        "min_p",
        "min_tokens",
        "presence_penalty",
        "repetition_penalty",
        "stop",
        "stop_token_ids",
        "store",
        "top_k",
    }
)
EXTENSIONS: Mapping[type[BaseModel], frozenset[str]] = {
    Response: _ENDING | _SAMPLING,
    ResponseTextDeltaEvent: frozenset({"speculation"}),
    # openai-node's type requires it, which this one lacks.
    ResponseFunctionCallArgumentsDoneEvent: frozenset({"name"}),
    ResponseFunctionCallArgumentsDeltaEvent: frozenset({"speculation"}),
    ResponseWsError: frozenset({"request_id", "retry_after"}),
    CompactedResponse: frozenset({"timings"}),
    whole_chat.Choice: _ENDING,
    streamed_chat.Choice: _ENDING,
    CompletionChoice: _ENDING,
    Model: frozenset({"context_length", "drafters", "state"}),
}


def validate_event(document: Mapping[str, Any], *, socket: bool = True) -> None:
    """An event of the Responses API, as a socket or as a stream over HTTP sends it."""
    known = _event_types(socket)
    assert document["type"] in known, f"no event of the clients: {document['type']}"
    validate(known[document["type"]], document)


def validate_response(document: Mapping[str, Any]) -> None:
    validate(Response, document)


def validate_compacted(document: Mapping[str, Any]) -> None:
    validate(CompactedResponse, document)


def validate_model(document: Mapping[str, Any]) -> None:
    validate(Model, document)


def validate_completion(document: Mapping[str, Any]) -> None:
    """A whole answer or a chunk, of chat completions or completions, by its `object`."""
    kinds: dict[str, type[BaseModel]] = {
        "chat.completion": ChatCompletion,
        "chat.completion.chunk": ChatCompletionChunk,
        "text_completion": Completion,
    }
    if document["object"] == "text_completion":
        document = _as_if_ended(document)
    validate(kinds[document["object"]], document)


def validate(kind: type[BaseModel], document: Mapping[str, Any]) -> None:
    found = kind.model_validate(document, strict=True)
    undocumented = list(beyond(found))
    assert not undocumented, f"{kind.__name__} has {undocumented}, which are documented nowhere"


def beyond(model: BaseModel, where: str = "") -> Iterator[str]:
    """Paths of the fields that neither the types nor `EXTENSIONS` know."""
    allowed = [names for kind, names in EXTENSIONS.items() if isinstance(model, kind)]
    for name in model.model_extra or {}:
        if not any(name in names for names in allowed):
            yield where + name
    for name in type(model).model_fields:
        yield from _within(getattr(model, name), f"{where}{name}.")


def _within(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from beyond(value, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _within(item, f"{where}{index}.")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _within(item, f"{where}{key}.")


def _as_if_ended(document: Mapping[str, Any]) -> dict[str, Any]:
    """The type has no chunk of a choice that goes on: there OpenAI too sends null."""
    choices = [
        {**choice, "finish_reason": choice["finish_reason"] or "stop"}
        for choice in document["choices"]
    ]
    return {**document, "choices": choices}


@cache
def _event_types(socket: bool) -> dict[str, type[BaseModel]]:
    union = get_args(ResponsesServerEvent if socket else ResponseStreamEvent)[0]
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(union)}
