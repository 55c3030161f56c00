"""Loads that hang are given up, and cost nobody else anything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gateway.engine.device_turns import DeviceTurns
from gateway.engine.engine import Engine
from gateway.engine.loading import load
from gateway.engine.observer import UNOBSERVED
from gateway.engine.options import EngineOptions
from gateway.fleet.fleet import Fleet
from gateway.fleet.starting import Starter
from gateway.fleet.steps import Steps
from gateway.fleet.terms import Source
from models.errors import UserError
from models.memory import MemoryNeed
from models.package import Package
from tests.engine_support import CONTEXT, build_engine
from tests.http_serving import until
from tests.learned_support import FakeLearned
from tests.patience import HOLD

STEP = 0.2


class Loads:
    """Stands in for `Engine.start`: says a step, and waits for `gate` behind it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.engines: list[Engine] = []
        self.closed = 0
        self.error: Exception | None = None

    async def __call__(
        self, package: Package, options: EngineOptions, report: Callable[[str], None], **_: Any
    ) -> Engine:
        report("graphs loaded")
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        engine = build_engine(package, slots=1)
        self.engines.append(engine)
        close = engine.close

        async def counted() -> None:
            await close()
            self.closed += 1

        engine.close = counted  # type: ignore[method-assign]
        return engine


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    loads = Loads()
    monkeypatch.setattr("gateway.fleet.starting.Engine.start", loads)
    return loads


def starter(package: Package, step: float = STEP) -> tuple[Starter, Source, list[str]]:
    said: list[str] = []
    make = Starter(
        EngineOptions(), "tiny", DeviceTurns(), lambda name: UNOBSERVED, said.append, step
    )
    name = package.manifest.name
    need = MemoryNeed(1 << 20, 0, 0)
    return make, Source(name, package.path, package.manifest, CONTEXT, need), said


async def refused(make: Starter, source: Source) -> str:
    with pytest.raises(UserError) as error:
        await make(source)
    assert error.value.code == "device_error"
    return error.value.message


async def test_a_step_that_takes_too_long_is_given_up(package: Package, loads: Loads) -> None:
    make, source, said = starter(package)
    assert "it is at 'graphs loaded'" in await refused(make, source)
    assert "graphs loaded" in said
    # One that hangs is enough.
    assert "still hangs" in await refused(make, source)
    assert loads.engines == []


@pytest.mark.parametrize("error", [None, RuntimeError("the device is lost")])
async def test_when_it_comes_back_it_is_freed_and_may_be_tried_again(
    package: Package, loads: Loads, error: Exception | None
) -> None:
    make, source, _ = starter(package)
    await refused(make, source)
    loads.error = error
    loads.gate.set()
    await until(lambda: not make._hanging)
    assert loads.closed == len(loads.engines) == (0 if error else 1)
    loads.error = None
    engine = await make(source)
    assert engine is loads.engines[-1]
    await engine.close()


async def test_steps_that_follow_one_another_take_as_long_as_they_take() -> None:
    steps = Steps(lambda line: None, STEP)

    async def work() -> None:
        for number in range(6):
            steps.say(str(number))
            await asyncio.sleep(STEP / 2)

    assert await steps.goes_on(asyncio.create_task(work()))
    assert steps.last == "5"


async def test_who_gives_up_waiting_ends_it(package: Package, loads: Loads) -> None:
    make, source, _ = starter(package)
    waiting = asyncio.create_task(make(source))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert make._hanging == {}


async def test_a_switch_to_what_hangs_leaves_the_default_and_the_next_switch(
    package: Package, loads: Loads
) -> None:
    make, source, _ = starter(package)
    fleet = Fleet()
    default = build_engine(package, slots=1)

    async def start(_: Source) -> Engine:
        return default

    other = Source("other", source.path, source.manifest, CONTEXT, source.need)
    fleet.add(other, start)
    fleet.add(source, make)
    await fleet.start()
    for _ in range(2):
        with pytest.raises(UserError, match=r"does not get on|still hangs"):
            await fleet.switch(source.name)
    assert fleet.default is fleet.member("other")
    assert (await fleet.pick(None)).engine is default
    assert fleet.member(source.name).state == "unloaded"
    assert await fleet.close()


async def test_a_drafter_that_hangs_while_the_engine_starts_is_one_thread_and_no_more(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned, gate = FakeLearned(), threading.Event()
    learned.loading = lambda: gate.wait(HOLD) or None  # type: ignore[assignment, func-returns-value]
    monkeypatch.setattr("gateway.engine.loading.learned_drafters", lambda *_, **__: learned)
    # All but the drafter is there at once.
    loaded = load(package, EngineOptions(slots=1, context=CONTEXT), lambda line: None)
    monkeypatch.setattr("gateway.engine.engine.load", lambda *_, **__: loaded)
    make, source, _ = starter(package, 10 * STEP)
    assert "does not get on" in await refused(make, source)
    for _ in range(2):
        assert "still hangs" in await refused(make, source)
    assert learned.loads == ["eagle3"]
    gate.set()
    await until(lambda: not make._hanging)
    await (await make(source)).close()
