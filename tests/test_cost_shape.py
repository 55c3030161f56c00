"""The shape of a run, and what a request's row joins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.engine.costs.overhead import RoundOverhead
from gateway.engine.costs.shape import NOBODY, Load, RunShape
from gateway.engine.costs.streams import Streams


def slot(length: int) -> Any:
    return SimpleNamespace(length=length)


def test_a_row_more_adds_its_tokens_and_what_it_has_cached() -> None:
    shape = RunShape.of([(10, 3), (20, 1)])
    # The kernel sees a lone token as two.
    assert shape == RunShape(2, 4, 30, 10 * 3 + 20 * 2)
    assert shape.with_tokens(5, 100) == RunShape.of([(10, 3), (20, 1), (100, 5)])
    assert shape.with_tokens(1, 100, tree=True) == RunShape(3, 5, 130, 70 + 200, True)
    assert RunShape(1, 4, tree=True).with_tokens(1, 0).tree
    assert NOBODY.with_tokens(4, 7) == Load(cached=7).run(4) == RunShape.of([(7, 4)])


def test_streams_bring_what_they_brought_of_late() -> None:
    streams = Streams()
    first, second = streams.enter(slot(100)), streams.enter(slot(50))
    assert streams.load(first) == Load(RunShape(1, 1, 50, 100), 100)
    assert streams.load(first).rows == 2
    for _ in range(60):
        second.ran(4)
    assert streams.load(first) == Load(RunShape(1, 4, 50, 200), 100)
    assert streams.load(second) == Load(RunShape(1, 1, 100, 200), 50)
    streams.leave(second)
    assert (streams.load(first), len(streams)) == (Load(NOBODY, 100), 1)


def test_an_overhead_is_a_mean_that_forgets() -> None:
    overhead = RoundOverhead()
    assert overhead.ms == 0
    for each in (1.0, 2.0, 3.0):
        overhead.observe(each)
    assert overhead.ms == pytest.approx(2.0)
    for _ in range(400):
        overhead.observe(0.5)
    assert overhead.ms == pytest.approx(0.5, rel=1e-3)
    overhead.observe(1e6)
    assert overhead.ms == pytest.approx(0.5 + 0.05 * 1.5, rel=1e-2)
    overhead.observe(-1.0)
    assert overhead.ms > 0
