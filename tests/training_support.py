"""Helpers for tests of the training text: a desk on the tiny package, and a target that babbles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from export.training.corpus import Conversation
from export.training.desk import Ask, Desk, Library, Script
from export.training.material import load_material
from export.training.speech import Ids, Speech
from export.training.stage import Performance, Stage
from export.training.writing import Job, Written

END = 2
CONTEXT = 8192
_WORDS = ("river", "engine", "garden", "seven", "morning", "doctor", "quiet", "paper", "silver")


def make_desk(speech: Speech, seed: int = 0, *, held: bool = False, context: int = CONTEXT) -> Desk:
    draw = np.random.default_rng(seed)
    return Desk(draw, speech, load_material(), Library(), context, held)


def perform(script: Script[None], answer: Callable[[Ask], Ids]) -> list[Ask]:
    """Play a script to its end; what it asked."""
    asks: list[Ask] = []
    try:
        asks.append(next(script))
        while True:
            asks.append(script.send(answer(asks[-1])))
    except StopIteration:
        return asks


class Babbler:
    """Writes random words, some of them numbers, with a question mark early on; every text is
    different, and ends by itself."""

    def __init__(self, speech: Speech, seed: int = 0) -> None:
        self._speech = speech
        self._draw = np.random.default_rng(seed)

    def __call__(self, job: Job[Performance] | Ask) -> Ids:
        words = [
            _WORDS[int(place)] if place < len(_WORDS) else str(self._draw.integers(10_000))
            for place in self._draw.integers(len(_WORDS) + 4, size=job.most)
        ]
        text = f" {' '.join(words[:3])}? {' '.join(words[3:])}"
        ids = self._speech.encode(text)[: job.most - 1]
        return (*ids, END)


def play(stage: Stage, babbler: Babbler, jobs: int) -> list[Conversation]:
    """What `jobs` jobs give, one at a time."""
    kept: list[Conversation] = []
    for number, job in enumerate(stage.jobs()):
        if number == jobs:
            break
        kept += stage.play(Written(job, babbler(job)))
    return kept
