"""What each cell of the matrix must show, whichever client it is: the same for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import pytest

from gateway.engine.choices import of_choice
from tests.clients_support import FULL
from tests.matrix_engine import (
    ASSISTANT,
    END,
    RESULT,
    SLOWLY,
    USER,
    Asked,
    Watch,
    WatchedEngine,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "town": {"enum": ["Bonn", "Oslo"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["town", "days"],
    "additionalProperties": False,
}
WET = "It is wet."
UNSPOKEN = "<|endoftext|>"
"""The model says this at times: it is among the ids of its turn, and no text."""

MOST_ROUNDS = 300
"""Of a slow answer that is left: whole it has more than 450."""

ERRORS: Mapping[str, tuple[str, str]] = {
    "model": ("model_not_found", "does not exist here"),
    "value": ("unsupported_value", "temperature must be from 0 to 2"),
    "full": ("queue_full", "the queue is full"),
    "key": ("invalid_api_key", "A valid API key is needed"),
}
"""What goes wrong: its code, and a part of what is said of it."""


@dataclass
class Heard:
    """What a client got, with what was asked of the engine meanwhile and what that says alone."""

    found: dict[str, Any]
    watch: Watch
    asked: list[Asked]
    answers: dict[int, list[tuple[str, list[float]]]] = field(default_factory=dict)

    @classmethod
    async def of(cls, found: dict[str, Any], engine: WatchedEngine) -> Heard:
        """To be called while the engine lives: everything but what was left is asked once more."""
        heard = cls(found, engine.watch, list(engine.asked))
        for index, asked in enumerate(heard.asked):
            if SLOWLY in asked.text:
                continue
            one = asked.n == 1
            choices = [asked.request] if one else [of_choice(asked.request, i) for i in range(3)]
            told = [await engine.answer(choice) for choice in choices]
            heard.answers[index] = [(text, [e.logprob for e in scored]) for text, scored in told]
        return heard

    def alone(self, asked: Asked) -> list[tuple[str, list[float]]]:
        """What the engine says to this, choice by choice, with log-probabilities."""
        return self.answers[self.asked.index(asked)]

    def of_cell(self, feature: str, way: str) -> list[Asked]:
        found = [asked for asked in self.asked if f"{feature} {way}" in asked.text]
        assert found, "it was asked"
        return found


def prompt_of(way: str, said: str) -> str:
    return said if way == "T" else f"{USER}{said}{END}{ASSISTANT}"


def text(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    """The answer whole and streamed, as plain decoding has it."""
    asked = heard.of_cell("text", way)
    if way != "T":
        assert {each.text for each in asked} == {prompt_of(way, f"text {way}")}
    assert {heard.alone(each)[0][0] for each in asked} == {cell["whole"]}
    assert cell["whole"]
    assert "".join(cell["deltas"]) == cell["whole"]
    assert len([delta for delta in cell["deltas"] if delta]) > 1


def turns(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    """The second turn is asked behind the first one's words, however it is continued."""
    first, *later = heard.of_cell("turns", way)
    begun = prompt_of(way, f"turns {way}")
    said, *answers = cell["said"]
    assert (first.text, heard.alone(first)[0][0]) == (begun, said)
    going = f"{begun}{said}{END}{USER}And?{END}{ASSISTANT}"
    assert [each.text.replace(UNSPOKEN, "") for each in later] == [going] * len(answers)
    assert [heard.alone(each)[0][0] for each in later] == answers
    assert answers


def tools(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    """A call that had to be made, its arguments as they were written, and what follows it."""
    asked = heard.of_cell("tools", way)
    called = [each for each in asked if RESULT not in each.text]
    assert all(each.request.constraint is not None for each in called)
    assert cell["name"] == "get_weather"
    made = json.loads(cell["arguments"])
    jsonschema.validate(made[cell["inside"]] if "inside" in cell else made, SCHEMA)
    assert json.loads("".join(cell["deltas"])) == made
    assert len(cell["deltas"]) > 1, "arguments are streamed"
    (after,) = [each for each in asked if RESULT in each.text]
    before, _, result = after.text.rpartition(RESULT)
    assert result.startswith(WET)
    assert '{"name": "get_weather", "arguments": ' in before.rpartition(ASSISTANT)[2]
    assert heard.alone(after)[0][0] == cell["answer"]


def schema(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    asked = heard.of_cell("schema", way)
    assert all(each.request.constraint is not None for each in asked)
    jsonschema.validate(cell["parsed"], SCHEMA)
    if "deltas" in cell:
        assert json.loads("".join(cell["deltas"])) == cell["parsed"]
        assert len(cell["deltas"]) > 1


def logprobs(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    (asked,) = heard.of_cell("logprobs", way)
    ((_, expected),) = heard.alone(asked)
    assert len(expected) > 1
    assert cell["logprobs"] == pytest.approx(expected, abs=1e-6)


def stop(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    """Cut before the first place where the mark is said."""
    *_, cut = heard.of_cell("stop", way)
    assert cell["stop"] in cut.request.stop
    assert cell["stop"]
    assert cell["said"] == cell["whole"][: cell["whole"].index(cell["stop"])]


def n(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    """Three answers, each as its own seed draws it."""
    for asked in heard.of_cell("n", way):
        assert asked.n == 3
        expected = [answer for answer, _ in heard.alone(asked)]
        assert cell["texts"] == expected
        assert cell.get("streamed", expected) == expected
    assert len(set(cell["texts"])) == 3


def errors(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    """Each is an error of the client's own; which one, and what it says, its row knows."""
    assert "full" in cell
    for error in cell.values():
        assert error["kinds"], error["message"]
    assert not any(FULL in asked.text for asked in heard.asked)


def cancel(heard: Heard, way: str, cell: dict[str, Any]) -> None:
    """What was left ended at once: the slot was free while the client lived on, and nothing is
    computed for it any more."""
    assert cell["closed"] is True
    assert cell.get("background", True) is True
    assert cell.get("status", "cancelled") == "cancelled"
    assert [asked for asked in heard.asked if f"{SLOWLY} {way}" in asked.text]
    for left in heard.watch.left:
        assert left.ended in ("abandoned", "cancelled")
        assert left.rounds < MOST_ROUNDS
    assert heard.watch.stray == 0
    assert heard.watch.active == 0


CHECKS: Mapping[str, Callable[[Heard, str, dict[str, Any]], None]] = {
    check.__name__: check
    for check in (text, turns, tools, schema, logprobs, stop, n, errors, cancel)
}
