"""Compiling beside what runs: once for all who ask, kept, bounded in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from gateway.engine.constraints import Constraints
from models.constraints.compiler import TooSlowError
from models.constraints.guide import Grammar, Guide
from models.constraints.source import ConstraintSource
from models.errors import UserError
from tests.constraints_support import regex
from tests.engine_support import until
from tests.patience import HOLD, PATIENCE


class FakeMatcher:
    def deep_copy(self) -> FakeMatcher:
        return FakeMatcher()


class FakeCompiler:
    """Waits for `gate`, with what is `slow` for another; refuses what is called `bad`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.slow_gate = threading.Event()
        self.slow_gate.set()
        self.impatient_gate = threading.Event()
        self.impatient_gate.set()
        self.tried: list[str] = []
        self.compiled: list[str] = []
        self.prepared = 0
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def prepare(self) -> None:
        self.prepared += 1

    def compile(self, source: ConstraintSource, *, patient: bool = True) -> Grammar:
        if source.text.startswith("slow") and not patient:
            self.tried.append(source.text)
            assert self.impatient_gate.wait(HOLD), "a test forgot to open the gate"
            raise TooSlowError
        self.compiled.append(source.text)
        gate = self.slow_gate if source.text.startswith("slow") else self.gate
        assert gate.wait(HOLD), "a test forgot to open the gate"
        if source.text == "slow heavy":
            raise source.refusal("takes more than 5 s", "unsupported_value")
        if source.text == "bad":
            raise source.refusal("cannot be compiled: bad")
        return Grammar(FakeMatcher(), 10, (1,))  # type: ignore[arg-type]


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler()


@pytest.fixture
async def constraints(compiler: FakeCompiler) -> AsyncIterator[Constraints]:
    made = Constraints(compiler, kept=2, seconds=5.0)
    yield made
    compiler.gate.set()
    compiler.slow_gate.set()
    compiler.impatient_gate.set()
    await made.close()
    await made.close()
    assert compiler.closed == 1


async def test_compiled_once_and_kept(compiler: FakeCompiler, constraints: Constraints) -> None:
    first = await constraints.grammar(regex("a"))
    again = await constraints.grammar(ConstraintSource("regex", "a", "text.format.regex"))
    assert first is again
    assert compiler.compiled == ["a"]
    guides = [await constraints.guide(regex("a")) for _ in range(2)]
    assert all(isinstance(guide, Guide) for guide in guides)
    assert guides[0] is not guides[1]


async def test_who_asks_meanwhile_waits_for_the_same(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    compiler.gate.clear()
    calls = [asyncio.ensure_future(constraints.grammar(regex("a"))) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.wait(calls[:1])
    compiler.gate.set()
    second, third = await asyncio.gather(*calls[1:])
    assert second is third
    assert compiler.compiled == ["a"]


async def test_those_used_last_are_kept(compiler: FakeCompiler, constraints: Constraints) -> None:
    for text in ("a", "b", "a", "c", "a", "b"):
        await constraints.grammar(regex(text))
    assert compiler.compiled == ["a", "b", "c", "b"]


async def test_what_failed_is_tried_again_and_names_its_field(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    for param in ("response_format.regex", "text.format.regex"):
        with pytest.raises(UserError, match="cannot be compiled: bad") as caught:
            await constraints.grammar(ConstraintSource("regex", "bad", param))
        assert caught.value.param == param
    assert compiler.compiled == ["bad", "bad"]


async def test_a_grammar_that_met_a_limit_is_compiled_anew(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    first = await constraints.grammar(regex("a"))
    first.broken = True
    assert await constraints.grammar(regex("a")) is not first
    assert compiler.compiled == ["a", "a"]


async def test_what_takes_too_long_is_refused_and_there_when_it_is_done(
    compiler: FakeCompiler,
) -> None:
    constraints = Constraints(compiler, seconds=0.05)
    compiler.gate.clear()
    with pytest.raises(UserError, match=r"within 0\.05 s") as caught:
        await constraints.grammar(regex("a"))
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "response_format")
    compiler.gate.set()
    await until(lambda: bool(constraints._grammars))
    await constraints.grammar(regex("a"))
    assert compiler.compiled == ["a"]
    await constraints.close()


async def test_preparing_is_done_beforehand(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    await constraints.prepare()
    assert compiler.prepared == 1


async def test_slow_ones_keep_no_other_key_waiting_nor_their_own(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    compiler.slow_gate.clear()
    slow = [
        asyncio.ensure_future(constraints.grammar(regex(f"slow {n}"), "greedy")) for n in range(6)
    ]
    await until(lambda: "slow 0" in compiler.compiled)
    async with asyncio.timeout(PATIENCE):
        await constraints.grammar(regex("a"), "modest")
        await constraints.grammar(regex("b"), "greedy")
    assert compiler.compiled == ["slow 0", "a", "b"]
    other = asyncio.ensure_future(constraints.grammar(regex("slow other"), "modest"))
    await until(lambda: len(constraints._patient._turns) == 6)
    compiler.slow_gate.set()
    await asyncio.gather(*slow, other)
    assert compiler.compiled[3:5] == ["slow other", "slow 1"], "keys take turns"


async def test_a_slow_one_that_nobody_waits_for_is_not_waited_for(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    compiler.impatient_gate.clear()
    left = asyncio.ensure_future(constraints.grammar(regex("slow left"), "one"))
    await until(lambda: compiler.tried == ["slow left"])
    left.cancel()
    await asyncio.wait([left])
    compiler.impatient_gate.set()
    await constraints.grammar(regex("a"), "one")
    assert compiler.compiled == ["a"]
    assert constraints._jobs == {}


async def test_who_left_needs_no_turn(compiler: FakeCompiler, constraints: Constraints) -> None:
    compiler.gate.clear()
    first = asyncio.ensure_future(constraints.grammar(regex("a"), "one"))
    await until(lambda: compiler.compiled == ["a"])
    left = [asyncio.ensure_future(constraints.grammar(regex(f"x{n}"), "one")) for n in range(3)]
    await until(lambda: len(constraints._quick._turns) == 3)
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    compiler.gate.set()
    await first
    await constraints.grammar(regex("b"), "one")
    assert compiler.compiled == ["a", "b"]
    assert constraints._jobs == {}


async def test_what_took_long_to_refuse_is_refused_at_once_afterwards(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    for _ in range(2):
        for param in ("response_format", "text.format.schema"):
            source = ConstraintSource("regex", "slow heavy", param)
            with pytest.raises(UserError, match="takes more than 5 s") as caught:
                await constraints.grammar(source)
            assert caught.value.param == param
    assert compiler.compiled == ["slow heavy"] * 2


async def test_the_same_of_two_keys_waits_for_its_own_turn(
    compiler: FakeCompiler, constraints: Constraints
) -> None:
    """Else whoever asks for another one's constraint, at the end of a long queue, delays that."""
    compiler.gate.clear()
    asked = [("greedy", "a"), ("greedy", "b"), ("greedy", "c"), ("modest", "c")]
    tasks = [asyncio.ensure_future(constraints.grammar(regex(text), key)) for key, text in asked]
    await until(lambda: len(constraints._quick._turns) == 3)
    compiler.gate.set()
    await tasks[3]
    assert compiler.compiled[:2] == ["a", "c"]
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("running", ["a", "slow one"])
async def test_closing_tells_whoever_waits(
    compiler: FakeCompiler, constraints: Constraints, running: str
) -> None:
    """What is compiled, what waits for its turn, and what is asked afterwards."""
    compiler.gate.clear()
    compiler.impatient_gate.clear()
    texts = (running, running, "b", "c")
    calls = [asyncio.ensure_future(constraints.grammar(regex(text), "k")) for text in texts]
    await until(lambda: compiler.compiled == ["a"] or compiler.tried == ["slow one"])
    closing = asyncio.ensure_future(constraints.close())
    async with asyncio.timeout(PATIENCE):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(result, "code", result) for result in results] == ["draining"] * 4
    compiler.gate.set()
    compiler.impatient_gate.set()
    async with asyncio.timeout(PATIENCE):
        await closing
    assert compiler.compiled + compiler.tried == [running], "nothing was begun any more"
    with pytest.raises(UserError) as error:
        await constraints.grammar(regex("a"))
    assert error.value.code == "draining"
