"""What an answer's text is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Something said."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Something thought."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """Calls are numbered from 0; `id` is what their results refer to."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of its arguments, as they are written."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """`whole`: its arguments were closed."""

    index: int
    whole: bool = True


Part = Text | Thought | CallBegun | CallDelta | CallEnded
