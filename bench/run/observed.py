"""What a run observed: answers, the waves they came in, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bench.client import WireAnswer
from bench.prompts import Question
from bench.run.plan import FEWEST_TOKENS, Condition
from bench.run.schema import Absent


@dataclass(frozen=True, slots=True)
class Observed:
    """One answer. `ttft_ms` is None where the prompt was mostly in the gateway's cache, `tpot_ms`
    where the answer is too short to be timed. `gaps_ms` lie between deltas with tokens."""

    question: str
    category: str
    repeat: int
    ids: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    ttft_ms: float | None
    tpot_ms: float | None
    gaps_ms: tuple[float, ...]
    timings: Mapping[str, Any]

    @property
    def overhead_ms(self) -> float | None:
        """What of the gateway's decoding time was neither drafting nor verifying."""
        per_token: float | None = self.timings["tpot_ms"]
        if self.tpot_ms is None or per_token is None:
            return None
        known: float = self.timings["draft_ms"] + self.timings["verify_ms"]
        return per_token * (len(self.ids) - 1) - known


@dataclass(frozen=True, slots=True)
class Wave:
    """Answers of some prompts, and the seconds from the first request to the last token."""

    seconds: float
    answers: tuple[Observed, ...]

    @property
    def tokens(self) -> int:
        return sum(len(answer.ids) for answer in self.answers)


@dataclass(slots=True)
class Outcome:
    """Everything seen of a condition. `absent` says why its figures are none."""

    condition: Condition
    waves: list[Wave] = field(default_factory=list)
    absent: Absent | None = None

    def answers(self, category: str | None = None) -> list[Observed]:
        """Those of `category`, or all."""
        seen = [answer for wave in self.waves for answer in wave.answers]
        return [one for one in seen if category is None or one.category == category]


def observed(question: Question, repeat: int, answer: WireAnswer) -> Observed:
    reused = 2 * answer.cached_tokens > answer.prompt_tokens
    times = answer.arrivals
    return Observed(
        question=question.id,
        category=question.category,
        repeat=repeat,
        ids=answer.ids,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        ttft_ms=None if reused else answer.ttft_ms,
        tpot_ms=answer.tpot_ms if answer.tokens >= FEWEST_TOKENS else None,
        gaps_ms=tuple((now - then) * 1e3 for then, now in pairwise(times)),
        timings=answer.timings,
    )
