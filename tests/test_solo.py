"""Rounds that are made on the thread of the runs, while their stream is alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.answer import Answer
from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.costs.overhead import RoundOverhead
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.device_turns import DeviceTurns
from gateway.engine.observer import RoundSeen, Unobserved
from gateway.engine.pulse import Pulse
from gateway.engine.requests import Delta, GenerationRequest, Speculation
from gateway.engine.solo import LeftError, Relay, Solo, now
from gateway.engine.transcript import Transcript
from gateway.engine.worker import Worker
from models.draft import Draft
from models.drafters.survival import Survival
from models.package import Package
from models.slots import Slot
from models.target import Row, RowResult
from tests.engine_support import (
    OFF,
    Reference,
    TestEngine,
    ask,
    is_idle,
    make_prompt,
    read,
    running,
    until,
)
from tests.learned_support import FakeLearned, eagle
from tests.patience import PATIENCE

PROMPT = make_prompt(30)
OTHER = make_prompt(25, seed=7)
DRAFTED = Speculation(drafter="ngram", policy="cost")


@pytest.fixture(scope="module")
def answer(package: Package) -> list[int]:
    return Reference(package).answer(PROMPT, 60)


@pytest.fixture(scope="module")
def other_answer(package: Package) -> list[int]:
    return Reference(package).answer(OTHER, 24)


def counted(engine: TestEngine, monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """What is handed over to the engine's threads from now on."""
    jobs: list[Callable[..., Any]] = []
    submit = Worker.submit

    def noted(worker: Worker, function: Callable[..., Any], *arguments: Any) -> Any:
        jobs.append(function)
        return submit(worker, function, *arguments)

    monkeypatch.setattr(Worker, "submit", noted)
    return jobs


def opened(engine: TestEngine, speculation: Speculation = OFF, most: int = 60) -> Any:
    request = GenerationRequest(PROMPT, max_tokens=most, ignore_eos=True, speculation=speculation)
    return engine.open(request)


@pytest.mark.parametrize("speculation", [OFF, DRAFTED], ids=["off", "ngram"])
async def test_an_answer_that_is_alone_is_handed_over_a_few_times_and_not_every_round(
    speculation: Speculation,
    tiny_package: Path,
    answer: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(tiny_package) as engine:
        jobs = counted(engine, monkeypatch)
        said = await ask(engine, PROMPT, max_tokens=60, speculation=speculation)
        assert said.ids == answer
        assert said.finished.timings.rounds > 10
        assert len(jobs) <= 3, "the copy of a prefix, the prompt, and all rounds"


async def test_who_comes_is_in_the_next_run(
    tiny_package: Path, answer: list[int], other_answer: list[int]
) -> None:
    async with running(tiny_package) as engine:
        first = asyncio.create_task(ask(engine, PROMPT, max_tokens=60, speculation=OFF))
        await until(lambda: len(engine.target.runs) > 10)
        engine.target.gate.clear()
        before = len(engine.target.runs)
        await until(lambda: len(engine.target.runs) > before or not engine.service.idle)
        held = len(engine.target.runs)
        second = asyncio.create_task(ask(engine, OTHER, speculation=OFF))
        await until(lambda: engine.service.waiting_prefills == 1)
        engine.target.gate.set()
        assert (await second).ids == other_answer
        assert (await first).ids == answer
        later = engine.target.runs[held:]
        assert {len(rows) for rows in later[1:4]} == {2}, "both are in every run"


async def test_a_cancelled_answer_ends_while_its_run_goes_on(
    tiny_package: Path, answer: list[int]
) -> None:
    async with running(tiny_package, slots=1) as engine, opened(engine) as generation:
        first = await anext(generation)
        assert isinstance(first, Delta)
        engine.target.gate.clear()
        runs = len(engine.target.runs)
        await until(lambda: len(engine.target.runs) > runs)
        generation.cancel()
        async with asyncio.timeout(PATIENCE):
            rest = await read(generation)
        assert rest.finished.reason == "cancelled"
        assert is_idle(engine)
        runs = len(engine.target.runs)
        said = [*first.ids, *rest.ids]
        assert said == answer[: len(said)]
        assert rest.finished.usage.completion_tokens == len(said)
        engine.target.gate.set()
        again = await ask(engine, PROMPT, max_tokens=60, speculation=OFF)
        assert again.ids == answer
        after = engine.target.runs[runs]
        assert after[0].tokens[0] in PROMPT, "the run behind it is the next prompt's"


async def test_a_failed_answer_is_told_so_while_its_run_goes_on(tiny_package: Path) -> None:
    async with running(tiny_package, slots=1) as engine, opened(engine) as generation:
        await anext(generation)
        engine.target.gate.clear()
        runs = len(engine.target.runs)
        await until(lambda: len(engine.target.runs) > runs)
        generation.fail(ZeroDivisionError())
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ZeroDivisionError):
                await read(generation)


async def test_a_failing_run_is_the_answers(tiny_package: Path, answer: list[int]) -> None:
    async with running(tiny_package, slots=1) as engine:
        engine.target.broken = lambda rows: len(engine.target.runs) == 20
        with pytest.raises(Exception, match="the kernel failed"):
            await ask(engine, PROMPT, max_tokens=60, speculation=OFF)
        assert is_idle(engine)
        assert (await ask(engine, PROMPT, max_tokens=60, speculation=OFF)).ids == answer


async def test_closing_ends_it(tiny_package: Path) -> None:
    async with running(tiny_package, slots=1) as engine:
        engine.target.seconds = 0.005
        asked = asyncio.create_task(ask(engine, PROMPT, max_tokens=60, speculation=OFF))
        await until(lambda: len(engine.target.runs) > 5)
        await engine.close()
        with pytest.raises(Exception, match="shutting down"):
            await asked
        assert len(engine.target.runs) < 40


async def test_the_observer_is_told_on_the_loop_of_every_round(tiny_package: Path) -> None:
    seen: list[tuple[int, RoundSeen]] = []

    class Watching(Unobserved):
        def round(self, round_: RoundSeen) -> None:
            seen.append((threading.get_ident(), round_))

    async with running(tiny_package, slots=1) as engine:
        engine.observer = Watching()
        said = await ask(engine, PROMPT, max_tokens=60, speculation=DRAFTED)
        assert len(seen) == said.finished.timings.rounds
        assert {thread for thread, _ in seen} == {threading.get_ident()}
        assert sum(each.verified for _, each in seen) == said.finished.timings.draft_n


async def test_each_run_has_a_pulse_of_its_own(tiny_package: Path) -> None:
    began: list[int] = []

    class Counting(Pulse):
        def begin(self) -> None:
            began.append(threading.get_ident())
            super().begin()

    async with running(tiny_package, slots=1) as engine:
        engine.service._pulse = Counting()
        said = await ask(engine, PROMPT, max_tokens=60, speculation=OFF)
        assert len(began) >= said.finished.timings.rounds - 2


def ran(rows: Sequence[Row]) -> list[RowResult]:
    return [None for _ in rows]  # type: ignore[misc]


def made_solo(turns: DeviceTurns) -> Solo:
    return Solo(ran, None, Pulse(), turns, Relay(asyncio.new_event_loop()))


def test_nothing_is_touched_once_somebody_left(tiny_slot: Slot) -> None:
    solo = made_solo(DeviceTurns())
    touched = []

    async def rounds() -> None:
        await solo.decode(tiny_slot, 1)
        touched.append("once")
        solo._held.release()
        solo.leave()
        solo._held.acquire()
        await solo.draft(tiny_slot, Draft)
        touched.append("after it was left")

    with pytest.raises(LeftError), solo.begun():
        now(rounds())
    assert touched == ["once"]
    with pytest.raises(LeftError), solo.begun():
        touched.append("begun")
    assert touched == ["once"]


def test_what_fails_once_somebody_left_is_nobodys(tiny_slot: Slot) -> None:
    """Told that its draft failed, an answer would go on without it: with a run of the target."""

    def failing() -> Draft:
        solo.leave()
        raise RuntimeError("the drafter failed")

    def failing_run(rows: Sequence[Row]) -> list[RowResult]:
        solo.leave()
        raise RuntimeError("the kernel failed")

    solo = made_solo(DeviceTurns())
    with pytest.raises(LeftError), solo.begun():
        now(solo.draft(tiny_slot, failing))
    assert not solo.drafting
    relay = Relay(asyncio.new_event_loop())
    solo = Solo(failing_run, None, Pulse(), DeviceTurns(), relay)
    with pytest.raises(LeftError), solo.begun():
        now(solo.decode(tiny_slot, 1))
    solo.leave()  # what the rounds held is held by nobody


@pytest.fixture
def tiny_slot(package: Package) -> Slot:
    from models.providers import select_provider
    from models.slots import make_slot

    spec = package.manifest.target
    return make_slot(0, spec, 16, select_provider("cpu", spec.device))


async def test_what_can_wait_is_done_on_the_loop(
    tiny_package: Path, answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text is made, and drafters are learnt from, while the next run goes on."""
    threads: dict[str, set[int]] = {}

    def watch(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            threads.setdefault(f"{owner.__name__}.{name}", set()).add(threading.get_ident())
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in (
        (Transcript, "add"),
        (Survival, "observe"),
        (DraftCosts, "observe"),
        (RunCosts, "observe"),
        (RoundOverhead, "observe"),
        (Answer, "_accept"),
    ):
        watch(owner, name)
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned) as engine:
        said = await ask(engine, PROMPT, max_tokens=40, speculation=eagle(3))
    assert said.ids == answer[:40]
    here = threading.get_ident()
    assert threads.pop("Answer._accept") > {here}, "rounds are made elsewhere"
    assert len(threads) == 5
    assert set(threads) == {name for name, seen in threads.items() if seen == {here}}


async def test_what_fails_on_the_loop_fails_the_answer(
    tiny_package: Path, answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    add, calls = Transcript.add, 0

    def breaking(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise ZeroDivisionError
        return add(*arguments)

    monkeypatch.setattr(Transcript, "add", breaking)
    async with running(tiny_package, slots=1) as engine:
        with pytest.raises(ZeroDivisionError):
            await ask(engine, PROMPT, max_tokens=60, speculation=OFF)
        assert calls < 60, "the rounds end too"
        assert is_idle(engine)
        assert (await ask(engine, PROMPT, max_tokens=60, speculation=OFF)).ids == answer


def test_the_thread_is_wanted_by_others() -> None:
    turns = DeviceTurns()
    solo = made_solo(turns)
    wanted = [solo.wanted]
    turns.shared = True
    wanted.append(solo.wanted)
    turns.shared = False
    solo.call_back()
    wanted.append(solo.wanted)
    assert wanted == [False, True, True]


def test_a_round_that_waits_is_no_round_for_a_thread() -> None:
    with pytest.raises(AssertionError, match="waits for nothing"):
        now(asyncio.sleep(0))


async def test_what_is_put_is_made_in_order_with_one_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    posted: list[Callable[..., object]] = []
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda call: posted.append(call))
    relay, made = Relay(loop), list[object]()
    relay.post()
    assert posted == [], "there is nothing to make"
    relay.put(made.append, 1)
    relay.post()
    relay.put(made.append, 2)
    relay.post()
    assert (len(posted), made) == (1, [])
    posted[0]()
    assert made == [1, 2]
    relay.put(made.append, 3)
    relay.post()
    assert len(posted) == 2
    relay.deliver()
    posted[1]()
    assert made == [1, 2, 3]


async def test_beside_a_prompt_that_is_read_nothing_is_handed_over_for_nothing(
    tiny_package: Path, answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tiny_package, busy_chunk=2, prefill_chunk=2) as engine:
        engine.target.seconds = 0.002
        first = asyncio.create_task(ask(engine, PROMPT, max_tokens=60, speculation=OFF))
        await until(lambda: len(engine.target.runs) > 20)
        jobs = counted(engine, monkeypatch)
        runs = len(engine.target.runs)
        await ask(engine, make_prompt(60, seed=3), max_tokens=1, speculation=OFF)
        alone = [job for job in jobs if job.__name__ == "begun"]
        assert len(engine.target.runs) - runs >= 20
        assert len(alone) <= 2
        assert (await first).ids == answer
