"""Flags that say how a suite samples, and how its report says it."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from models.sampling.parameters import Sampling

_NUMBERS = (
    ("temperature", "T"),
    ("top_p", "P"),
    ("min_p", "M"),
    ("repetition_penalty", "R"),
    ("presence_penalty", "A"),
    ("frequency_penalty", "F"),
)
_WHOLE = (("top_k", "K"), ("seed", "S"))


def add_sampling_arguments(
    parser: argparse.ArgumentParser, temperature: float = 0.0, seed: int = 0
) -> None:
    """A flag per parameter, neutral by default but for `temperature`."""
    neutral = Sampling(temperature=temperature, seed=seed)
    for fields, kind in ((_NUMBERS, float), (_WHOLE, int)):
        for name, metavar in fields:
            parser.add_argument(
                "--" + name.replace("_", "-"),
                type=kind,
                metavar=metavar,
                default=getattr(neutral, name),
                help=f"default: {getattr(neutral, name):g}",
            )


def sampling_of(parsed: argparse.Namespace) -> Sampling:
    """Raises `UserError` for a value out of range."""
    return Sampling(**{name: getattr(parsed, name) for name, _ in (*_NUMBERS, *_WHOLE)})


def settings_of(sampling: Sampling) -> dict[str, Any]:
    """Every parameter, as the JSON document keeps it."""
    settings = dataclasses.asdict(sampling)
    settings["logit_bias"] = [list(pair) for pair in sampling.logit_bias]
    return settings


def describe(sampling: Sampling) -> str:
    """In words: `greedy`, or what is not neutral."""
    neutral = Sampling(temperature=sampling.temperature)
    parts = ["greedy" if sampling.greedy else f"temperature {sampling.temperature:g}"]
    parts += [
        f"{name} {getattr(sampling, name):g}"
        for name, _ in (*_NUMBERS[1:], ("top_k", "K"))
        if getattr(sampling, name) != getattr(neutral, name)
    ]
    if not sampling.greedy:
        parts.append(f"seed {sampling.seed}")
    return ", ".join(parts)
