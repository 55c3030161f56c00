"""Decoding alone: times per token of answers that lie within a phase, against plain decoding's.

Tokens per second also hold prefills, which a policy can neither shorten nor avoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.client import WireAnswer
from bench.prompts import Question
from bench.run.plan import FEWEST_TOKENS
from bench.run.schema import Absent, Interval, Metric, Quantity
from bench.serve.figures import MS, SHARE, ratio_to

_NONE = Absent("missing", "no answer was decoded within the phase")
_APART = Absent("missing", "no prompt was decoded within the phase under both")
_ONE_PROMPT = Absent("missing", "one prompt has no spread")


@dataclass(frozen=True, slots=True)
class Decoded:
    """An answer from its first arrival to its last one, and what was in the cache of its prompt."""

    question: str
    tpot_ms: float
    prompt_tokens: int
    cached_tokens: int


Run = Sequence[Decoded]
"""Those of one phase in one repeat."""


def decoded_of(question: Question, answer: WireAnswer, begin: float, end: float) -> Decoded | None:
    """None for what was not decoded between these readings of the clock alone, or is too short to
    be timed."""
    tpot = answer.tpot_ms
    if answer.first is None or answer.last is None or tpot is None:
        return None
    if answer.first < begin or answer.last > end or answer.tokens < FEWEST_TOKENS:
        return None
    return Decoded(question.id, tpot, answer.prompt_tokens, answer.cached_tokens)


def tpot_of(runs: Sequence[Run]) -> Metric:
    times = [one.tpot_ms for run in runs for one in run]
    return Quantity(median(times), MS) if times else _NONE


def cached_of(runs: Sequence[Run]) -> Metric:
    tokens = sum(one.prompt_tokens for run in runs for one in run)
    found = sum(one.cached_tokens for run in runs for one in run)
    return Quantity(found / tokens, SHARE) if tokens else _NONE


def tpot_ratio(
    own: Sequence[Run], off: Sequence[Run] | None, seed: int
) -> tuple[Metric, Interval | Absent]:
    """Mean time over that of plain decoding, on the prompts that have one in both; below 1 is
    faster. `off` None: `own` is plain decoding."""
    pairs = [] if off is None else pairs_of(own, off)
    if off is not None and not pairs:
        return _APART, _APART
    plain = None if off is None else [theirs for _, theirs in pairs]
    ratio, interval = ratio_to([ours for ours, _ in pairs], plain, seed)
    return ratio, _ONE_PROMPT if len(pairs) == 1 else interval


def pairs_of(own: Sequence[Run], off: Sequence[Run]) -> list[tuple[float, float]]:
    """For each prompt its time in both: the median over the repeats in which both decoded it."""
    both: dict[str, tuple[list[float], list[float]]] = {}
    for ours, theirs in zip(own, off, strict=False):
        shared = {one.question for one in ours} & {one.question for one in theirs}
        for side, run in enumerate((ours, theirs)):
            for one in run:
                if one.question in shared:
                    both.setdefault(one.question, ([], []))[side].append(one.tpot_ms)
    return [(median(ours), median(theirs)) for ours, theirs in both.values()]
