"""The record of one answer: what it took, and what speculation did for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from gateway.engine.requests import LOSSLESS_RULES, Timings, Usage


def _now() -> float:
    return time.perf_counter() * 1e3


@dataclass(slots=True)
class Record:
    """Counts and clocks of one answer, in milliseconds."""

    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    decoded: int = 0
    drafted: int = 0
    accepted: int = 0
    trees: int = 0
    verified_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    accept_ms: float = 0.0
    opened: float = field(default_factory=_now)
    first_token: float | None = None
    last_token: float | None = None

    def mark_started(self, cached_tokens: int) -> None:
        self.queue_ms = _now() - self.opened
        self.cached_tokens = cached_tokens

    def mark_tokens(self, total: int) -> None:
        """The answer has `total` tokens now: fewer than before where a stop took some back."""
        if total > self.completion_tokens:
            self.last_token = _now()
            if self.first_token is None:
                self.first_token = self.last_token
        self.completion_tokens = total

    def mark_round(
        self,
        *,
        drafted: int,
        depth: int,
        accepted: int,
        advanced: int,
        verify_ms: float,
        tree: bool,
    ) -> None:
        """`drafted` tokens down to `depth` were verified, and the answer advanced by `advanced`, of
        which `accepted` were drafted. What was drafted behind the answer's end is in none of them.
        """
        self.rounds += 1
        self.decoded += advanced
        self.drafted += drafted
        self.accepted += accepted
        self.trees += tree
        self.verify_ms += verify_ms
        missing = [0] * (depth - len(self.verified_at))
        self.verified_at += missing
        self.accepted_at += missing
        for index in range(depth):
            self.verified_at[index] += 1
            self.accepted_at[index] += index < accepted

    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.cached_tokens, self.completion_tokens)

    def timings(self, drafter: str, policy: str, rule: str, exact: bool) -> Timings:
        """`exact` says whether the kernels are; an answer with a tree in it is not."""
        return Timings(
            draft_n=self.drafted,
            draft_n_accepted=self.accepted,
            rounds=self.rounds,
            tau=self.decoded / self.rounds if self.rounds else None,
            alpha=self.accepted / self.drafted if self.drafted else None,
            queue_ms=self.queue_ms,
            prefill_ms=self.prefill_ms,
            ttft_ms=self._ttft_ms(),
            tpot_ms=self._tpot_ms(),
            draft_ms=self.draft_ms,
            verify_ms=self.verify_ms,
            accept_ms=self.accept_ms,
            drafter=drafter,
            policy=policy,
            rule=rule,
            lossless=rule in LOSSLESS_RULES,
            exact=exact and self.trees == 0,
            depths=tuple(zip(self.verified_at, self.accepted_at, strict=True)),
        )

    def _ttft_ms(self) -> float | None:
        if self.first_token is None or self.completion_tokens == 0:
            return None
        return self.first_token - self.opened

    def _tpot_ms(self) -> float | None:
        if self.first_token is None or self.last_token is None or self.completion_tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.completion_tokens - 1)
