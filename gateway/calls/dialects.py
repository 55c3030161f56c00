"""The forms in which models call functions and think, and which of them a model has learnt."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["hermes", "llama3", "mistral"]

THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
PYTHON = "<|python_tag|>"
CALLS, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"

_LETTERS = string.ascii_letters + string.digits
_MARKS = (THINK, THOUGHT, CALL, CALLED, PYTHON, CALLS, ARGUMENTS, CALL_ID)


@dataclass(frozen=True, slots=True)
class Manner:
    """What is known of a model from its chat template.

    `told` says that the template itself tells of functions; where it does not, they are described
    in the system message. `named_arguments`: Mistral's newer form, without a list. `thinks`: it may
    think before it answers, or is told to by the template.
    """

    dialect: Dialect
    told: bool
    named_arguments: bool = False
    thinks: bool = False

    @property
    def arguments(self) -> str:
        """The key of a call's arguments."""
        return "parameters" if self.dialect == "llama3" else "arguments"


def manner_of(template: str | None) -> Manner:
    """By the source of a template; None where there is none."""
    source = template or ""
    told = "tools" in source
    return Manner(
        dialect=_dialect_of(source) if told else "hermes",
        told=told,
        named_arguments=ARGUMENTS in source,
        thinks=THOUGHT in source,
    )


def _dialect_of(source: str) -> Dialect:
    if CALLS in source:
        return "mistral"
    if CALL not in source and (PYTHON in source or '"parameters": dict' in source):
        return "llama3"
    return "hermes"


def special_marks(token_id: Callable[[str], int | None], special_ids: Set[int]) -> dict[str, int]:
    """The special tokens that are marks of these forms: they must be seen to be understood."""
    known = ((mark, token_id(mark)) for mark in _MARKS)
    return {mark: token for mark, token in known if token is not None and token in special_ids}


def new_call_id(manner: Manner) -> str:
    """Mistral's templates take ids of nine letters and digits alone."""
    if manner.dialect == "mistral":
        return "".join(secrets.choice(_LETTERS) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"
