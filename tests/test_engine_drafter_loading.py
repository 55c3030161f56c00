"""Graphs of learned drafters: loaded at start or on first use, once, as far as memory goes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Speculation
from models.errors import DeviceError, UserError
from models.package import load_package
from tests.engine_support import CONTEXT, Reference, ask, is_idle, read, running, until
from tests.learned_support import COUNT, PLAIN_PROMPT, FakeLearned, eagle, opened
from tests.patience import HOLD


@pytest.fixture(scope="module")
def answer(reference: Reference) -> list[int]:
    return reference.answer(PLAIN_PROMPT, COUNT + 8)


async def test_graphs_load_once_for_all_who_wait(tiny_package: Path, answer: list[int]) -> None:
    learned = FakeLearned(script=answer)
    gate = threading.Event()
    learned.loading = lambda: gate.wait(HOLD) or None  # type: ignore[assignment, func-returns-value]
    async with running(tiny_package, learned=learned) as engine:
        async with engine.open(opened(speculation=eagle(3))) as leaver:
            others = [
                asyncio.ensure_future(ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3)))
                for _ in range(2)
            ]
            await until(lambda: learned.loads == ["eagle3"])
            plain = await ask(engine, (1, 2, 3), max_tokens=4, speculation=Speculation("off"))
            assert len(plain.ids) == 4, "others go on meanwhile"
            leaver.cancel()
            assert (await read(leaver)).finished.reason == "cancelled"
        gate.set()
        assert [said.ids for said in await asyncio.gather(*others)] == [answer[:4]] * 2
    assert learned.loads == ["eagle3"]


async def test_a_drafter_for_which_there_is_no_memory_is_refused_until_there_is(
    tiny_package: Path, answer: list[int]
) -> None:
    learned = FakeLearned(script=answer)

    def refuse() -> None:
        if len(learned.loads) == 1:
            raise UserError("it does not fit.", code="out_of_memory")

    learned.loading = refuse
    async with running(tiny_package, learned=learned) as engine:
        with pytest.raises(UserError) as error:
            await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
        assert error.value.code == "out_of_memory"
        assert is_idle(engine)
        said = await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
    assert said.ids == answer[:4]


async def started(
    path: Path, learned: FakeLearned, monkeypatch: pytest.MonkeyPatch, drafter: str
) -> tuple[Engine, list[str]]:
    monkeypatch.setattr("gateway.engine.loading.learned_drafters", lambda *_, **__: learned)
    report: list[str] = []
    options = EngineOptions(slots=1, context=CONTEXT, drafter=drafter)
    return await Engine.start(load_package(path), options, report.append), report


@pytest.mark.parametrize(
    ("drafter", "loaded", "used"),
    [
        ("auto", ["eagle3"], "ngram+eagle3"),
        ("mtp", ["mtp"], "mtp"),
        ("ngram", [], "ngram"),
        ("off", [], "off"),
    ],
)
async def test_at_start_the_default_drafter_is_loaded(
    tiny_package: Path,
    monkeypatch: pytest.MonkeyPatch,
    drafter: str,
    loaded: list[str],
    used: str,
) -> None:
    learned = FakeLearned(("mtp", "eagle3"))
    engine, report = await started(tiny_package, learned, monkeypatch, drafter)
    assert learned.loads == loaded
    assert engine.status().drafter == used
    assert report[-1] == "drafters: ngram, mtp, eagle3"
    await engine.close()


async def test_a_default_drafter_that_the_package_has_not_stops_the_start(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError) as error:
        await started(tiny_package, FakeLearned(("mtp",)), monkeypatch, "eagle3")
    assert error.value.code == "unknown_drafter"


@pytest.mark.parametrize("drafter", ["auto", "eagle3"])
@pytest.mark.parametrize("code", ["out_of_memory", "graph_invalid"])
async def test_where_a_drafter_cannot_be_loaded_only_auto_starts(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch, drafter: str, code: str
) -> None:
    learned = FakeLearned()

    def refuse() -> None:
        raise UserError("it does not fit.", code=code)

    learned.loading = refuse
    if drafter == "eagle3":
        with pytest.raises(UserError) as error:
            await started(tiny_package, learned, monkeypatch, drafter)
        assert error.value.code == code
        return
    engine, report = await started(tiny_package, learned, monkeypatch, drafter)
    assert "only the ngram drafter: it does not fit." in report
    said = await ask(engine, PLAIN_PROMPT, max_tokens=3, speculation=Speculation())
    assert said.finished.timings.drafter == engine.status().drafter == "ngram"
    assert learned.loads == ["eagle3"], "not tried again for everybody"
    await engine.close()


async def test_a_target_that_fails_while_a_drafter_is_measured_is_no_failure_of_the_drafter(
    tiny_package: Path, answer: list[int]
) -> None:
    learned = FakeLearned(script=answer)
    async with running(tiny_package, learned=learned) as engine:
        engine.target.broken = lambda rows: True
        with pytest.raises(DeviceError, match="the kernel failed"):
            await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
        (_, status) = engine.status().drafters
        assert (status.loaded, status.failures, status.problem) == (False, 0, None)
        assert is_idle(engine)
        engine.target.broken = lambda rows: False
        said = await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
    assert said.ids == answer[:4]


async def test_a_drafter_that_fails_while_it_is_measured_is_noted(
    tiny_package: Path, answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> dict[int, float]:
        raise RuntimeError("its chain failed")

    monkeypatch.setattr("gateway.engine.drafters.measure_chains", failing)
    async with running(tiny_package, learned=FakeLearned(script=answer)) as engine:
        said = await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
        (_, status) = engine.status().drafters
    assert said.ids == answer[:4]
    assert (status.loaded, status.failures, status.problem) == (True, 1, "its chain failed")


async def test_a_load_that_hangs_is_given_up_and_told(
    tiny_package: Path, answer: list[int]
) -> None:
    learned, gate = FakeLearned(script=answer), threading.Event()
    learned.loading = lambda: gate.wait(HOLD) or None  # type: ignore[assignment, func-returns-value]
    async with running(tiny_package, learned=learned) as engine:
        engine._loads.limit(0.05)
        with pytest.raises(UserError, match="loading drafter eagle3 does not get on") as error:
            await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
        assert error.value.code == "device_error"
        (_, status) = engine.status().drafters
        assert (status.loaded, status.problem) == (False, error.value.message)
        with pytest.raises(UserError, match="still hangs"):
            await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
        assert is_idle(engine)
        plain = await ask(engine, (1, 2, 3), max_tokens=4, speculation=Speculation("off"))
        assert len(plain.ids) == 4, "others go on"
        gate.set()
        await engine._loads.close()
        said = await ask(engine, PLAIN_PROMPT, max_tokens=4, speculation=eagle(3))
        assert said.ids == answer[:4], "it is tried again when that came back"
        (_, status) = engine.status().drafters
        assert (status.loaded, status.problem) == (True, None)
