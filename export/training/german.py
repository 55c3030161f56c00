"""German sentences: forms whose slots are filled anew each time."""

from __future__ import annotations

import re

import numpy as np

from export.training.material import Material, chance, pick
from export.training.texts import tokenised

_UNITS = ("Millionen Euro", "Milliarden Euro", "Millionen Dollar")
_SLOT = re.compile(r"\{(\w+)\}")


def german_sentence(draw: np.random.Generator, material: Material) -> str:
    """A sentence, some with a lead, a clause or another sentence."""
    text = _filled(draw, material, pick(draw, material.german))
    if chance(draw, 0.2):
        text = f"{_filled(draw, material, pick(draw, material.words['lead']))} {text}"
    if text.endswith(".") and chance(draw, 0.2):
        text = f"{text[:-1]}, {pick(draw, material.words['clause'])}."
    if chance(draw, 0.12):
        text = f"{text} {_filled(draw, material, pick(draw, material.german))}"
    return tokenised(text) if chance(draw, 0.7) else text


def _filled(draw: np.random.Generator, material: Material, form: str) -> str:
    filled = _SLOT.sub(lambda match: _value(draw, material, match[1]), form)
    return re.sub(r"\w", lambda letter: letter[0].upper(), filled, count=1)


def _value(draw: np.random.Generator, material: Material, slot: str) -> str:
    match slot:
        case "year":
            return str(draw.integers(1950, 2035))
        case "percent":
            whole = str(draw.integers(1, 60))
            return f"{whole},{draw.integers(1, 10)}" if chance(draw, 0.5) else whole
        case "few":
            return str(draw.integers(2, 13))
        case "number":
            return str(int(draw.integers(10, 400)) * pick(draw, (1, 1, 5, 10)))
        case "money":
            return f"{draw.integers(2, 900)} {pick(draw, _UNITS)}"
    return pick(draw, material.words[slot])
