"""One request under load: an answer with its times, a refusal, or a failure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bench.client import Client, GatewayError, WireAnswer
from bench.prompts import Question
from bench.serve.plan import Plan, Targets

Ending = Literal["answered", "refused", "failed"]
REFUSAL = "queue_full"


@dataclass(frozen=True, slots=True)
class Request:
    """`due` is when it was meant to be sent, which its times count from; clock readings in
    seconds. `why` is empty for an answer; what an answer has is 0 or None for anything else."""

    due: float
    ended: float
    ending: Ending
    why: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    queue_ms: float | None = None
    rounds: int = 0
    verified: int = 0
    accepted: int = 0

    def good(self, targets: Targets) -> bool:
        """Answered, and in time: both times known ones are within their targets."""
        known = ((self.ttft_ms, targets.ttft_ms), (self.tpot_ms, targets.tpot_ms))
        late = any(ms is not None and ms > most for ms, most in known)
        return self.ending == "answered" and not late


async def ask(
    client: Client,
    plan: Plan,
    question: Question,
    wire: Mapping[str, Any],
    due: float,
    *,
    ignore_eos: bool = False,
) -> Request:
    """Never raises `GatewayError`: what goes wrong under load is part of what is measured."""
    try:
        answer = await client.ask(
            question.turns[0],
            max_tokens=plan.max_tokens,
            sampling=plan.sampling,
            speculation=wire,
            provenance=True,
            ignore_eos=ignore_eos,
        )
    except GatewayError as error:
        refused = str(error).partition(":")[0] == REFUSAL
        ending: Ending = "refused" if refused else "failed"
        return Request(due, time.perf_counter(), ending, str(error))
    return _answered(answer, due)


def unsent(due: float, error: GatewayError) -> Request:
    """A request without a connection."""
    return Request(due, time.perf_counter(), "failed", str(error))


def _answered(answer: WireAnswer, due: float) -> Request:
    timings = answer.timings
    return Request(
        due=due,
        ended=time.perf_counter(),
        ending="answered",
        tokens=answer.tokens,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        ttft_ms=None if answer.first is None else (answer.first - due) * 1e3,
        tpot_ms=answer.tpot_ms,
        queue_ms=timings["queue_ms"],
        rounds=timings["rounds"],
        verified=timings["draft_n"],
        accepted=timings["draft_n_accepted"],
    )
