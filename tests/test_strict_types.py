"""The validator itself: what it lets through is what the wire is held to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.strict_types import validate_completion, validate_event

DELTA: dict[str, Any] = {
    "type": "response.output_text.delta",
    "sequence_number": 4,
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": "a",
    "logprobs": [],
}
CHUNK: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "m",
    "system_fingerprint": "fp",
    "choices": [{"index": 0, "text": "a", "logprobs": None, "finish_reason": None}],
}


def test_what_the_types_say_passes() -> None:
    validate_event(DELTA)
    validate_event(DELTA, socket=False)
    validate_event({**DELTA, "speculation": {"source": "target"}, "stream_id": "a"})
    validate_completion(CHUNK)


@pytest.mark.parametrize(
    "changed",
    [
        {"delta": 7},
        {"delta": None},
        {"sequence_number": "4"},
        {"sequence_number": 4.5},
        {"logprobs": None},
        {"logprobs": [{"token": "a"}]},
    ],
)
def test_what_is_of_another_type_fails(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        validate_event({**DELTA, **changed})


@pytest.mark.parametrize("missing", ["sequence_number", "item_id", "logprobs"])
def test_what_is_missing_fails(missing: str) -> None:
    with pytest.raises(ValidationError):
        validate_event({name: value for name, value in DELTA.items() if name != missing})


def test_what_is_documented_nowhere_fails() -> None:
    with pytest.raises(AssertionError, match="surprise"):
        validate_event({**DELTA, "surprise": 1})
    with pytest.raises(AssertionError, match=r"logprobs\.0\.bytes"):
        validate_event({**DELTA, "logprobs": [{"token": "a", "logprob": -1.0, "bytes": [97]}]})
    with pytest.raises(AssertionError, match=r"stream_id"):
        validate_event({**DELTA, "stream_id": "a"}, socket=False)
    with pytest.raises(AssertionError, match=r"choices\.0\.surprise"):
        validate_completion({**CHUNK, "choices": [{**CHUNK["choices"][0], "surprise": 1}]})


def test_an_unknown_event_fails() -> None:
    with pytest.raises(AssertionError, match=r"response\.sung"):
        validate_event({**DELTA, "type": "response.sung"})
