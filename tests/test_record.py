"""The record of one answer: counts over the right denominators, clocks in order."""

from __future__ import annotations

import pytest

from gateway.engine import record as record_module
from gateway.engine.marks import RoundTrace
from gateway.engine.observer import RoundSeen, Unobserved
from gateway.engine.record import Record, Round
from gateway.engine.requests import Delta, DrafterTimings, Usage
from gateway.engine.transcript import Accepted
from models.draft import Draft


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(record_module, "now", clock)
    return clock


def a_record(clock: Clock) -> Record:
    return Record(prompt_tokens=10, opened=clock.now)


def mark(
    record: Record,
    drafted: int,
    accepted: int,
    *,
    tree: bool = False,
    source: str = "ngram",
    said: int | None = None,
    draft_ms: float | None = None,
) -> None:
    """A round that added its bonus token as well; a tree has two tokens at each depth."""
    forks = tuple(range(-1, drafted // 2 - 1)) * 2 if tree else None
    draft = Draft(tuple(range(drafted)), forks, source=source)
    mark_draft(record, draft, accepted, accepted + 1, said=said, draft_ms=draft_ms)


def mark_draft(
    record: Record,
    draft: Draft,
    accepted: int,
    taken: int,
    *,
    said: int | None = None,
    draft_ms: float | None = None,
    verify_ms: float = 10.0,
) -> None:
    """A round that ends now. Without `said` the answer did not grow, and without `draft_ms`, that
    of all rounds, nothing was drafted in it."""
    said = record.completion_tokens if said is None else said
    draft_ms = record.draft_ms if draft_ms is None else draft_ms
    ended = record_module.now()
    stands = the_first(accepted, draft)
    record.mark_round(Round(stands, taken, said, draft_ms, verify_ms, ended))


def the_first(count: int, draft: Draft) -> Accepted:
    return Accepted(draft, tuple(range(count)), (*draft.tokens[:count], 9), None, 0.0)


def test_alpha_is_accepted_by_verified_and_tau_counts_the_bonus(clock: Clock) -> None:
    record = a_record(clock)
    for drafted, accepted in ((4, 4), (4, 0), (0, 0), (2, 1)):
        mark(record, drafted, accepted)
    timings = record.timings("ngram", "auto", "coupled", exact=True)
    assert (timings.draft_n, timings.draft_n_accepted, timings.rounds) == (10, 5, 4)
    assert timings.alpha == 0.5
    assert timings.tau == (5 + 1 + 1 + 2) / 4
    assert timings.verify_ms == 40.0


def test_survival_is_counted_by_depth(clock: Clock) -> None:
    record = a_record(clock)
    mark(record, 1, 1)
    mark(record, 4, 2)
    mark(record, 4, 2, tree=True)
    mark(record, 0, 0)
    timings = record.timings("ngram", "auto", "coupled", exact=True)
    assert timings.depths == ((3, 3), (2, 2), (1, 0), (1, 0))


def test_tokens_count_for_who_proposed_them(clock: Clock) -> None:
    record = a_record(clock)
    mark(record, 4, 2)
    mark(record, 2, 0, source="eagle3")
    mixed = Draft((1, 2, 3), (-1, 0, 0), source="ngram", sources=("ngram", "eagle3", "ngram"))
    mark_draft(record, mixed, 2, 3)
    assert record.timings("ngram+eagle3", "auto", "coupled", exact=True).by_drafter == {
        "ngram": DrafterTimings(draft_n=6, draft_n_accepted=3, rounds=2),
        "eagle3": DrafterTimings(draft_n=3, draft_n_accepted=1, rounds=2),
    }


def test_what_lies_behind_the_end_counts_for_nobody(clock: Clock) -> None:
    record = a_record(clock)
    both = Draft((1, 2, 3, 4), source="ngram", sources=("ngram", "ngram", "eagle3", "eagle3"))
    mark_draft(record, both, 4, 3)
    timings = record.timings("ngram+eagle3", "auto", "coupled", exact=True)
    assert (timings.draft_n, timings.draft_n_accepted, timings.tau) == (3, 3, 3.0)
    assert timings.by_drafter["eagle3"] == DrafterTimings(1, 1, 1)
    assert timings.depths == ((1, 1),) * 3


def test_what_was_not_measured_is_missing_and_not_zero(clock: Clock) -> None:
    timings = a_record(clock).timings("off", "off", "coupled", exact=False)
    assert (timings.tau, timings.alpha, timings.ttft_ms, timings.tpot_ms) == (None,) * 4
    assert timings.exact is False


def test_no_alpha_where_nothing_was_drafted(clock: Clock) -> None:
    record = a_record(clock)
    mark(record, 0, 0)
    timings = record.timings("off", "off", "coupled", exact=True)
    assert (timings.tau, timings.alpha) == (1.0, None)


def test_times_are_from_opening_and_between_tokens(clock: Clock) -> None:
    record = a_record(clock)
    clock.now += 30
    record.mark_started(cached_tokens=4)
    clock.now += 70
    record.mark_tokens(1)
    clock.now += 20
    record.mark_tokens(4)
    clock.now += 5
    record.mark_tokens(4)
    clock.now += 35
    record.mark_tokens(5)
    clock.now += 1000
    timings = record.timings("ngram", "auto", "coupled", exact=True)
    assert (timings.queue_ms, timings.ttft_ms, timings.tpot_ms) == (30.0, 100.0, 60.0 / 4)
    assert record.usage() == Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=5)


def test_one_token_has_no_time_per_further_token(clock: Clock) -> None:
    record = a_record(clock)
    record.mark_tokens(1)
    assert record.timings("off", "off", "coupled", exact=True).tpot_ms is None


def test_an_empty_round_is_no_first_token(clock: Clock) -> None:
    record = a_record(clock)
    record.mark_tokens(0)
    assert record.timings("off", "off", "coupled", exact=True).ttft_ms is None


def test_tokens_that_a_stop_took_back_do_not_count(clock: Clock) -> None:
    record = a_record(clock)
    record.mark_tokens(3)
    record.mark_tokens(2)
    assert record.usage().completion_tokens == 2
    record.mark_tokens(0)
    timings = record.timings("off", "off", "coupled", exact=True)
    assert (timings.ttft_ms, timings.tpot_ms) == (None, None)


@pytest.mark.parametrize(
    ("rule", "lossless"),
    [
        ("coupled", True),
        ("classic", True),
        ("typical", False),
        ("adasd", False),
        ("synthetic", False),
    ],
)
def test_rules_that_are_not_lossless_are_marked(clock: Clock, rule: str, lossless: bool) -> None:
    timings = a_record(clock).timings("ngram", "auto", rule, exact=True)
    assert (timings.rule, timings.lossless) == (rule, lossless)


def test_an_answer_with_a_tree_in_it_is_not_exact(clock: Clock) -> None:
    record = a_record(clock)
    mark(record, 3, 1, tree=True)
    mark(record, 3, 1)
    assert record.timings("ngram", "auto", "coupled", exact=True).exact is False


class Seen(Unobserved):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.rounds: list[RoundSeen] = []

    def started(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        self.told.append(("started", waited, prompt_tokens, cached_tokens))

    def first_token(self, seconds: float) -> None:
        self.told.append(("first", seconds))

    def more_tokens(self, count: int, seconds: float) -> None:
        self.told.append(("more", count, seconds))

    def round(self, seen: RoundSeen) -> None:
        self.rounds.append(seen)

    def ended(self, reason: str, seconds: float) -> None:
        self.told.append(("ended", reason, seconds))


def test_an_observer_is_told_of_everything_as_it_comes(clock: Clock) -> None:
    seen = Seen()
    record = Record(prompt_tokens=10, opened=clock.now, policy="cost", observer=seen)
    clock.now += 500
    record.mark_started(cached_tokens=4)
    clock.now += 250
    record.mark_tokens(1)
    clock.now += 16
    mark(record, 4, 2, said=4, draft_ms=2.0)
    clock.now += 12
    mark(record, 0, 0, said=5)
    record.mark_tokens(3)
    clock.now += 222
    record.mark_ended("stop")
    assert seen.told == [
        ("started", 0.5, 10, 4),
        ("first", 0.75),
        ("more", 3, 0.016),
        ("more", 1, 0.012),
        ("ended", "stop", 1.0),
    ]
    drafted, plain = seen.rounds
    assert drafted == RoundSeen("cost", "ngram", 4, 2, 0.002, 0.01, 0.004)
    assert plain == RoundSeen("cost", "none", 0, 0, 0.0, 0.01, 0.002)


def test_what_was_drafted_behind_the_end_is_not_seen(clock: Clock) -> None:
    seen = Seen()
    record = Record(prompt_tokens=10, opened=clock.now, observer=seen)
    draft = Draft((1, 2, 3, 4), source="eagle3")
    mark_draft(record, draft, 4, 2)
    (only,) = seen.rounds
    assert (only.drafter, only.verified, only.accepted) == ("eagle3", 2, 2)


def test_every_round_is_told_once_with_what_it_did(clock: Clock) -> None:
    record = a_record(clock)
    delta = Delta("a", (1,), ("target",), 0)
    assert record.tell(delta) == delta
    clock.now += 15
    mark(record, 4, 3, draft_ms=2.0)
    clock.now += 10
    mark(record, 0, 0)
    clock.now += 12
    both = Draft((1, 2, 3, 4), source="ngram")
    mark_draft(record, both, 4, 3, draft_ms=2.5, verify_ms=11.0)
    told = record.tell(delta)
    assert told.verified == 7
    assert told.rounds == (
        RoundTrace(round=1, ms=15.0, draft_ms=2.0, verify_ms=10.0, verified=4, accepted=3),
        RoundTrace(round=2, ms=25.0, draft_ms=0.0, verify_ms=10.0, verified=0, accepted=0),
        # What was drafted behind the answer's end counts nowhere.
        RoundTrace(round=3, ms=37.0, draft_ms=0.5, verify_ms=11.0, verified=3, accepted=3),
    )
    told = record.tell(delta)
    assert (told.rounds, told.verified) == ((), 0)


def test_what_is_recorded_late_counts_from_when_it_was(clock: Clock) -> None:
    seen = Seen()
    record = Record(prompt_tokens=10, opened=clock.now, observer=seen)
    clock.now += 100
    record.mark_tokens(1)
    rounds = [
        Round(the_first(0, Draft()), 1, said, 0.0, 10.0, clock.now + after)
        for said, after in ((2, 14), (3, 26))
    ]
    clock.now += 1000
    for each in rounds:
        record.mark_round(each)
    assert seen.told == [("first", 0.1), ("more", 1, 0.014), ("more", 1, 0.012)]
    assert [round(each.overhead, 6) for each in seen.rounds] == [0.004, 0.002]
    told = record.tell(Delta("a", (1,), ("target",), 0))
    assert [trace.ms for trace in told.rounds] == [114.0, 126.0]
    timings = record.timings("off", "off", "coupled", exact=True)
    assert (timings.ttft_ms, timings.tpot_ms) == (100.0, 13.0)
