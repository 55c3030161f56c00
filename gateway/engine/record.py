"""The record of one answer: what it took, and what speculation did for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.engine.marks import RoundTrace
from gateway.engine.observer import UNOBSERVED, Observer, RoundSeen
from gateway.engine.requests import LOSSLESS_RULES, Delta, DrafterTimings, Timings, Usage
from gateway.engine.transcript import Accepted
from models.draft import Draft


def now() -> float:
    """Milliseconds of a clock that never goes back."""
    return time.perf_counter() * 1e3


class Round(NamedTuple):
    """What a round did, which may be recorded when the next one has begun.

    Of the `accepted` tokens `taken` were looked at: what was drafted behind the answer's end counts
    nowhere. The answer has `said` tokens now. `draft_ms` is that of all rounds so far, `verify_ms`
    the run's; `ended` is when it was over, by `now`.
    """

    accepted: Accepted
    taken: int
    said: int
    draft_ms: float
    verify_ms: float
    ended: float


@dataclass(slots=True)
class Tally:
    """One drafter's tokens: in how many rounds, how many of them verified, how many accepted."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class Record:
    """Counts and clocks of one answer, in milliseconds; `observer` is told of them as they come."""

    prompt_tokens: int
    cached_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    decoded: int = 0
    trees: int = 0
    by_drafter: dict[str, Tally] = field(default_factory=dict)
    verified_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    untold: list[RoundTrace] = field(default_factory=list)
    told: int = 0
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    accept_ms: float = 0.0
    opened: float = field(default_factory=now)
    first_token: float | None = None
    last_token: float | None = None
    policy: str = "off"
    observer: Observer = UNOBSERVED
    _round_began: float = 0.0

    def mark_started(self, cached_tokens: int) -> None:
        self.queue_ms = now() - self.opened
        self.cached_tokens = cached_tokens
        self.observer.started(self.queue_ms / 1e3, self.prompt_tokens, cached_tokens)

    def mark_tokens(self, total: int, at: float | None = None) -> None:
        """The answer has `total` tokens, since `at` or just now: fewer than before where a stop
        took some back."""
        if total > self.completion_tokens:
            self._observe_tokens(total - self.completion_tokens, now() if at is None else at)
        self.completion_tokens = total

    def mark_ended(self, reason: str) -> None:
        self.observer.ended(reason, (now() - self.opened) / 1e3)

    def mark_round(self, round_: Round) -> None:
        accepted, taken, said, draft_ms, verify_ms, ended = round_
        draft, path = accepted.draft, accepted.path
        cut = taken <= len(path)
        right = path[:taken]
        self.rounds += 1
        self.decoded += taken
        self.trees += draft.forks
        self.verify_ms += verify_ms
        self._count_depths(taken if cut else draft.depth, len(right))
        verified = right if cut else range(len(draft.tokens))
        drafters = self._tally(draft, verified, right) if verified else "none"
        drafted_ms, self.draft_ms = draft_ms - self.draft_ms, draft_ms
        trace = RoundTrace(
            self.rounds, ended - self.opened, drafted_ms, verify_ms, len(verified), len(right)
        )
        self.untold.append(trace)
        self._observe_round(drafters, trace, ended)
        self.mark_tokens(said, ended)

    def _tally(self, draft: Draft, verified: Sequence[int], right: Sequence[int]) -> str:
        """Count the draft tokens of a round for their drafters, whose names are joined by `+`."""
        if draft.sources is None:
            self._count(draft.source, len(verified), len(right))
            return draft.source
        accepted = Counter(draft.sources[index] for index in right)
        counts = Counter(draft.sources[index] for index in verified)
        for source, count in counts.items():
            self._count(source, count, accepted[source])
        return "+".join(sorted(counts))

    def _count(self, source: str, drafted: int, accepted: int) -> None:
        tally = self.by_drafter.get(source)
        if tally is None:
            tally = self.by_drafter[source] = Tally()
        tally.rounds += 1
        tally.drafted += drafted
        tally.accepted += accepted

    def tell(self, delta: Delta) -> Delta:
        """`delta` with the rounds that ended since the one before, and what those verified."""
        drafted = self.drafted
        verified, self.told = drafted - self.told, drafted
        rounds = tuple(self.untold)
        self.untold.clear()
        return delta._replace(verified=verified, rounds=rounds)

    def _observe_tokens(self, count: int, at: float) -> None:
        before, self.last_token = self.last_token, at
        if before is None:
            self.first_token = self._round_began = at
            self.observer.first_token((at - self.opened) / 1e3)
        else:
            self.observer.more_tokens(count, (at - before) / 1e3)

    def _observe_round(self, drafters: str, trace: RoundTrace, ended: float) -> None:
        taken, self._round_began = ended - self._round_began, ended
        beside = max(0.0, taken - trace.draft_ms - trace.verify_ms)
        self.observer.round(
            RoundSeen(
                policy=self.policy,
                drafter=drafters,
                verified=trace.verified,
                accepted=trace.accepted,
                draft=trace.draft_ms / 1e3,
                verify=trace.verify_ms / 1e3,
                overhead=beside / 1e3,
            )
        )

    def _count_depths(self, verified: int, accepted: int) -> None:
        missing = [0] * (verified - len(self.verified_at))
        self.verified_at += missing
        self.accepted_at += missing
        for depth in range(verified):
            self.verified_at[depth] += 1
            self.accepted_at[depth] += depth < accepted

    @property
    def drafted(self) -> int:
        return sum(tally.drafted for tally in self.by_drafter.values())

    @property
    def accepted(self) -> int:
        return sum(tally.accepted for tally in self.by_drafter.values())

    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.cached_tokens, self.completion_tokens)

    def timings(self, drafter: str, policy: str, rule: str, exact: bool) -> Timings:
        """`exact` says whether the kernels are; an answer with a tree in it is not."""
        drafted, accepted = self.drafted, self.accepted
        return Timings(
            draft_n=drafted,
            draft_n_accepted=accepted,
            rounds=self.rounds,
            tau=self.decoded / self.rounds if self.rounds else None,
            alpha=accepted / drafted if drafted else None,
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
            by_drafter={
                name: DrafterTimings(tally.drafted, tally.accepted, tally.rounds)
                for name, tally in self.by_drafter.items()
            },
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
