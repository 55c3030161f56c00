"""What scripts work with: asking the target, keeping what came of it, and texts to ask about."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from export.training.corpus import Conversation
from export.training.material import Material, chance, pick
from export.training.speech import Ids, Speech
from models.sampling.parameters import Sampling

MOST_GREEDY, MOST_SAMPLED = 256, 320
GREEDY = Sampling()
INVENTING = Sampling(temperature=1.0, top_k=50, top_p=0.95)
_MOST_TURN = 160
_LEAST_ROOM = 16
_GREEDY_SHARE = 0.6
_TEMPERATURES = (0.7, 0.8, 0.9, 1.0)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt to be continued by at most `most` tokens."""

    prompt: Ids
    most: int
    sampling: Sampling


Script = Generator[Ask, Ids, Result]
"""Yields asks, is sent what was written, and returns its result."""


@dataclass(frozen=True, slots=True)
class Text:
    """Something the target wrote, to be asked about, and how often it may yet be lent."""

    text: str
    topic: str
    loans: int = 3


@dataclass(frozen=True, slots=True)
class Library:
    """Texts for other scripts, by kind and by whether they are held."""

    texts: dict[tuple[str, bool], list[Text]] = field(default_factory=dict)

    def add(self, kind: str, held: bool, text: Text) -> None:
        self.texts.setdefault((kind, held), []).append(text)

    def take(self, draw: np.random.Generator, kind: str, held: bool) -> Text | None:
        """One of the texts at random; None where there is none."""
        shelf = self.texts.get((kind, held))
        if not shelf:
            return None
        text = shelf.pop(int(draw.integers(len(shelf))))
        if text.loans > 1:
            shelf.append(replace(text, loans=text.loans - 1))
        return text


@dataclass(frozen=True, slots=True)
class Exchange:
    """Ids up to the end of an answer, and the spans in them that the target wrote as answers."""

    ids: Ids
    spans: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Desk:
    """One script's. All the conversations it keeps are held, or none."""

    draw: np.random.Generator
    speech: Speech
    material: Material
    shelf: Library
    context: int
    held: bool
    kept: list[Conversation] = field(default_factory=list)

    def keep(self, kind: str, exchange: Exchange) -> None:
        mask = np.zeros(len(exchange.ids), dtype=np.uint8)
        for start, end in exchange.spans:
            mask[start:end] = 1
        ids = np.array(exchange.ids, dtype=np.int32)
        self.kept.append(Conversation(ids, mask, kind, self.held))

    def take_kept(self) -> list[Conversation]:
        """What was kept since the last time."""
        kept, self.kept = self.kept, []
        return kept

    def manner(self) -> Sampling:
        """How an answer is written: mostly greedily."""
        return GREEDY if chance(self.draw, _GREEDY_SHARE) else self.sampled()

    def sampled(self) -> Sampling:
        return Sampling(temperature=pick(self.draw, _TEMPERATURES))

    def taken(self, kind: str) -> Text | None:
        """A text of another script that is held like this one."""
        return self.shelf.take(self.draw, kind, self.held)

    def invented(self, prompt: Ids, most: int = _MOST_TURN) -> Script[str | None]:
        """What a user says next, by the target; None where nothing usable came."""
        ask = self._fitting(Ask(prompt, most, INVENTING))
        if ask is None:
            return None
        text = self.speech.decode((yield ask)).rstrip()
        return text if self.speech.is_plain(text) else None

    def answered(self, prompt: Ids, manner: Sampling) -> Script[Exchange | None]:
        """None where the context is too short."""
        most = MOST_GREEDY if manner.greedy else MOST_SAMPLED
        return (yield from self.continued(Ask(prompt, most, manner)))

    def continued(self, ask: Ask) -> Script[Exchange | None]:
        """None where the context is too short."""
        fitting = self._fitting(ask)
        if fitting is None:
            return None
        ids = ask.prompt + (yield fitting)
        return Exchange(ids, ((len(ask.prompt), len(ids)),))

    def _fitting(self, ask: Ask) -> Ask | None:
        """`ask` as far as the context reaches; None where that is hardly anything."""
        most = min(ask.most, self.context - len(ask.prompt))
        return replace(ask, most=most) if most >= _LEAST_ROOM else None
