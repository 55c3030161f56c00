"""A changing load: what its streams do, and when a width has come halfway."""

from __future__ import annotations

import pytest

from bench.client import GatewayError
from bench.run.schema import Absent, Interval, Quantity
from bench.serve.changes import phase_cells, rounds_until
from bench.serve.phases import Phase, phases_of, shared_out, widths
from bench.serve.windows import chosen
from tests.bench_serve_support import FIXED4, OFF_POLICY, QUESTIONS, arrivals, decoded, plan
from tests.fake_engine import FakeEngine
from tests.http_serving import serving

WIRE = FIXED4.wire(0.0)


def test_widths_are_by_round_without_the_prompts_own() -> None:
    first = arrivals((0.0, 1, 0, 0), (0.1, 3, 1, 4), (0.2, 2, 3, 6))
    second = arrivals((0.3, 2, 1, 5))
    assert widths([first, second]) == (4.0, 3.0, 3.0, 5.0)


def test_rounds_until_counts_to_halfway_of_where_it_settles() -> None:
    assert rounds_until([8.0] * 10, [8.0, 8.0, 8.0, 6.0, 2.0, 0.0, 0.0] + [0.0] * 7) == Quantity(
        2, "rounds"
    )
    assert rounds_until([0.0] * 10, [4.0] * 10) == Quantity(0, "rounds")
    same = rounds_until([4.0] * 10, [4.2] * 10)
    assert isinstance(same, Absent)
    assert same.absent == "missing"
    assert isinstance(rounds_until([], [4.0] * 10), Absent)


async def test_streams_come_and_go_and_the_first_one_stays() -> None:
    engine = FakeEngine("twelve chars", pace=0.002)
    asked = plan(phases=(1, 3, 1), answers=2)
    async with serving(engine) as served:
        alone, busy, after = await phases_of(served.url, asked, QUESTIONS, WIRE, 0)
    assert engine.most_running == 3
    assert (alone.streams, busy.streams, after.streams) == (1, 3, 1)
    # The first delta of a phase's first answer lies within it, too.
    assert alone.tokens == after.tokens == 2 * 12
    assert len(alone.decoded) == len(after.decoded) == 2
    assert 2 < len(busy.decoded) <= 3 * 2
    assert all(one.tpot_ms >= 2.0 for phase in (alone, busy, after) for one in phase.decoded)
    assert 2 * 12 < busy.tokens <= 4 * 2 * 12
    assert engine.running == 0


async def test_the_first_stream_has_prompts_of_its_own_where_there_are_enough() -> None:
    engine = FakeEngine("twelve chars", pace=0.002)
    asked = plan(phases=(1, 3, 1), answers=1)
    async with serving(engine) as served:
        await phases_of(served.url, asked, QUESTIONS, WIRE, 0)
    own, others = shared_out(asked, QUESTIONS, 0)
    assert (len(own), len(others)) == (3, 2)
    assert {question.id for question in (*own, *others)} == {one.id for one in QUESTIONS}
    prompts = [engine.prompt(index) for index in range(len(engine.requests))]
    for question in own:
        assert sum(question.turns[0] in prompt for prompt in prompts) == 1
    few = plan(phases=(1, 3, 1), answers=2)
    assert shared_out(few, QUESTIONS, 0) == (chosen(QUESTIONS, 5, 0), chosen(QUESTIONS, 5, 0))


async def test_a_stream_that_fails_ends_them_all() -> None:
    async with serving(FakeEngine(failure=RuntimeError("broken"))) as served:
        with pytest.raises(GatewayError, match="server_error"):
            await phases_of(served.url, plan(phases=(2, 1)), QUESTIONS, WIRE, 0)


def test_phases_are_compared_with_plain_decoding_of_the_same_phase() -> None:
    asked = plan(phases=(1, 8))
    slow, fast = (decoded("a", 10.0), decoded("b", 20.0)), (decoded("a", 5.0), decoded("b", 10.0))
    later = (6.0, 6.0, *(0.0,) * 8)
    plain = [[Phase(1, 1.0, 50, (0.0,) * 8, slow), Phase(8, 1.0, 200, (0.0,) * 8, ())]] * 2
    own = [[Phase(1, 1.0, 100, (6.0,) * 8, fast), Phase(8, 1.0, 220, later, fast)]] * 2
    first, second = phase_cells(asked, FIXED4, own, plain, None)
    assert (first.ratio, second.ratio) == (Quantity(2.0, "of off"), Quantity(1.1, "of off"))
    assert (first.tpot, second.tpot) == (Quantity(7.5, "ms"), Quantity(7.5, "ms"))
    assert first.tpot_ratio == Quantity(0.5, "of off")
    assert isinstance(first.tpot_interval, Interval)
    assert isinstance(second.tpot_ratio, Absent), "plain decoding has no time in the same phase"
    assert first.cached == Quantity(0.25, "share")
    assert first.settled == Quantity(6.0, "tokens/round")
    assert second.settled == Quantity(0.0, "tokens/round")
    assert second.rounds_until == Quantity(0, "rounds")
    assert isinstance(first.rounds_until, Absent)
    itself = phase_cells(asked, OFF_POLICY, plain, plain, None)[0]
    for figure in (itself.ratio, itself.tpot_ratio, itself.tpot_interval):
        assert isinstance(figure, Absent)
        assert figure.absent == "not_comparable"
    assert itself.tpot == Quantity(15.0, "ms")
    gone = Absent("failed", "eagle3: the kernel failed")
    failed = phase_cells(asked, FIXED4, [], plain, gone)[1]
    assert failed.throughput == failed.tpot == failed.tpot_interval == failed.cached == gone
