"""Configurations that the distribution tests run, and the real tiny model as a table."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from bench.draws import PROMPT, Configuration
from bench.tiny_model import TinyModel, place_of
from models.package import load_package
from models.providers import select_provider
from models.target import Row, Target

SAMPLES = 20_000
LEAST_P = 1e-4

_RULES = ("coupled", "classic")
_TEMPERATURES = (0.5, 1.0, 1.5)
_CUT = ("top-k", "top-p", "min-p")
_CHANGED = ("penalties", "bias")
_SINGLE = (
    "narrow top-k",
    "top-k",
    "top-p",
    "min-p",
    "repetition",
    "presence",
    "frequency",
    "bias",
    "rewards",
)


def configurations() -> list[Configuration]:
    """Every rule, shape and temperature with steps that cut and with steps that change logits.

    Beside these every step alone, no step at all, and drafts that are certain. `bench
    distribution` runs the whole cross product.
    """
    shapes = list(itertools.product(_RULES, (False, True)))
    crossed = [
        Configuration(rule, tree, True, temperature, steps)
        for temperature, steps in itertools.product(_TEMPERATURES, (_CUT, _CHANGED))
        for rule, tree in shapes
    ]
    single = [
        Configuration(rule, tree, True, 1.0, (step,))
        for step, (rule, tree) in zip(_SINGLE, itertools.cycle(reversed(shapes)), strict=False)
    ]
    plain = [Configuration("classic", False, True, 0.5), Configuration("coupled", True, True, 1.5)]
    certain = [Configuration(rule, tree, False, 1.0, _CUT + _CHANGED) for rule, tree in shapes]
    return [*crossed, *single, *plain, *certain]


def read_model(package: Path) -> TinyModel:
    """The package's target behind the prompt and every answer of up to two tokens."""
    target = Target(load_package(package), select_provider("cpu", "cpu"))
    size = target.vocab_size
    (slot,) = target.make_slots(1, 64)
    logits = np.zeros((1 + size + size**2, size), dtype=np.float32)
    for answer in itertools.product(range(size), repeat=2):
        (result,) = target.run([Row(slot, (*PROMPT, *answer), logits=3)])
        for length in range(3):
            logits[place_of(answer[:length], size)] = result.whole(length)
    return TinyModel(logits)
