"""Even pacing: when each token of a round is released."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.engine.pacing import Pacer
from gateway.engine.requests import Delta, Finished, Speculation
from tests.engine_support import GenerationRequest, make_prompt, running

PACED = Speculation(policy="fixed", length=8, pacing="even")


class FakeTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """A clock that is moved by hand, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, FakeTimer, Callable[[], object]]] = []
        self._count = itertools.count()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> FakeTimer:
        timer = FakeTimer()
        heapq.heappush(self._timers, (self.now + delay, next(self._count), timer, callback))
        return timer

    def until(self, when: float) -> None:
        while self._timers and self._timers[0][0] <= when:
            self.now, _, timer, callback = heapq.heappop(self._timers)
            if not timer.cancelled:
                callback()
        self.now = when


def tokens(*ids: int) -> list[Delta]:
    return [Delta(f"t{token}", (token,), ("target",), 1) for token in ids]


class Paced:
    """A pacer and when it released which token."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.released: list[tuple[float, int]] = []
        self.pacer = Pacer(self._note, self.loop)

    def _note(self, delta: Delta) -> None:
        self.released += [(round(self.loop.now, 6), token) for token in delta.ids]

    def round(self, when: float, *ids: int) -> None:
        self.loop.until(when)
        self.pacer.add(tokens(*ids))


def test_a_rounds_tokens_are_spread_over_the_time_of_a_round() -> None:
    paced = Paced()
    paced.round(0.0, 1)
    paced.round(0.04, 2)
    paced.round(0.08, 3, 4, 5, 6)
    paced.loop.until(0.12)
    assert paced.released[:2] == [(0.0, 1), (0.04, 2)]
    assert paced.released[2:] == [(0.08, 3), (0.09, 4), (0.1, 5), (0.11, 6)]


def test_nothing_is_held_back_before_a_round_was_timed() -> None:
    paced = Paced()
    paced.round(0.0, 1, 2, 3)
    assert [when for when, _ in paced.released] == [0.0] * 3


def test_what_is_left_comes_before_the_next_round() -> None:
    """A round that takes half of what was expected delays nothing."""
    paced = Paced()
    paced.round(0.0, 1)
    paced.round(0.04, 2)
    paced.round(0.08, 3, 4, 5, 6)
    paced.round(0.1, 7, 8)
    assert [token for _, token in paced.released] == [1, 2, 3, 4, 5, 6, 7]
    assert [when for when, _ in paced.released[2:]] == [0.08, 0.09, 0.1, 0.1, 0.1]
    paced.loop.until(1.0)
    assert [token for _, token in paced.released] == [1, 2, 3, 4, 5, 6, 7, 8], "none comes twice"


def test_a_slow_round_leaves_a_gap_but_no_token() -> None:
    paced = Paced()
    paced.round(0.0, 1)
    paced.round(0.04, 2)
    paced.round(0.08, 3, 4)
    paced.loop.until(0.5)
    assert paced.released[-2:] == [(0.08, 3), (0.1, 4)]


def test_the_end_waits_for_nothing() -> None:
    paced = Paced()
    paced.round(0.0, 1)
    paced.round(0.04, 2)
    paced.round(0.08, 3, 4, 5, 6)
    paced.pacer.flush()
    assert [token for _, token in paced.released] == [1, 2, 3, 4, 5, 6]
    assert paced.released[-1][0] == 0.08
    paced.loop.until(1.0)
    assert len(paced.released) == 6


def test_a_round_that_releases_nothing_is_timed_too() -> None:
    """What may be a stop string is held back for a round."""
    paced = Paced()
    paced.round(0.0, 1)
    paced.round(0.04)
    paced.round(0.08, 2, 3)
    paced.loop.until(0.2)
    assert paced.released[1:] == [(0.08, 2), (0.1, 3)]


@pytest.mark.parametrize("stop", [(), ("e",)])
async def test_a_paced_answer_is_the_same_answer(tiny_package: Path, stop: tuple[str, ...]) -> None:
    """Through an engine: the same tokens and text as without, one token a delta or merged."""
    async with running(tiny_package) as engine:
        answers = []
        for speculation in (Speculation(policy="fixed", length=8), PACED):
            request = GenerationRequest(
                make_prompt(30),
                max_tokens=40,
                speculation=speculation,
                stop=stop,
                reuse_prefix=False,
            )
            async with engine.open(request) as generation:
                events = [event async for event in generation]
            deltas = [event for event in events if isinstance(event, Delta)]
            assert isinstance(events[-1], Finished)
            answers.append(
                (
                    "".join(delta.text for delta in deltas),
                    [token for delta in deltas for token in delta.ids],
                    events[-1].reason,
                    events[-1].usage,
                )
            )
    assert answers[0] == answers[1]
