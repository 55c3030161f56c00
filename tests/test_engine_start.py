"""How an engine starts: what is loaded and measured, and what it refuses to start with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gateway.engine import loading
from gateway.engine.engine import Engine
from gateway.engine.loading import slot_context
from gateway.engine.options import EngineOptions
from models import memory
from models.errors import UserError
from models.package import Package
from tests.engine_support import (
    MOST,
    Reference,
    ask,
    make_prompt,
)


async def test_it_loads_probes_and_measures(
    package: Package,
) -> None:
    lines: list[str] = []
    prompt = make_prompt(34, seed=34)
    engine = await Engine.start(package, EngineOptions(slots=3, context=128), lines.append)
    try:
        status = engine.status()
        said = await ask(engine, prompt, max_tokens=MOST)
    finally:
        await engine.close()
    assert (status.model, status.device, status.slots) == ("tiny", "cpu", 3)
    assert (status.free_slots, status.running, status.waiting, status.kv_tokens) == (3, 0, 0, 0)
    assert (status.exact, status.differences) == (True, ())
    assert min(status.run_ms) == 2
    assert status.costs.source in ("measured", "cached")
    assert engine.costs.overhead.ms > 0, "it was alone"
    assert all(cost > 0 for cost in status.run_ms.values())
    assert status.memory_bytes == engine.memory.total > 0
    assert any(line.startswith("memory needed:") for line in lines)
    assert "bitwise row-independent" in lines
    assert engine.context_length == 128
    assert said.ids == Reference(package).answer(prompt, MOST)
    assert said.finished.timings.exact is True


async def test_what_runs_cost_is_kept_between_starts(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start may find the machine too busy to believe it, but never another's."""
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    options = EngineOptions(slots=2, context=64)
    for recalibrate, kept in ((False, 1), (True, 1)):
        engine = await Engine.start(package, options, recalibrate=recalibrate)
        await engine.close()
        assert engine.status().costs.source == "measured"
        assert len(list((tmp_path / "calibration").iterdir())) == kept
    monkeypatch.setattr("gateway.engine.costs.cache._NEAR", float("inf"))
    engine = await Engine.start(package, options)
    await engine.close()
    assert engine.status().costs.source == "cached"
    engine = await Engine.start(package, EngineOptions(slots=1, context=64))
    await engine.close()
    assert engine.status().costs.source == "measured"


async def test_the_package_decides_where_nothing_is_asked(package: Package) -> None:
    engine = await Engine.start(package, EngineOptions())
    await engine.close()
    assert engine.context_length == package.manifest.target.context_length
    assert engine.status().slots == 4
    assert engine.template is not None


async def test_a_device_it_was_not_built_for_is_refused(package: Package) -> None:
    with pytest.raises(UserError, match="built for cpu") as error:
        await Engine.start(package, EngineOptions(device="cuda"))
    assert error.value.code == "provider_unavailable"


async def test_memory_is_refused_before_it_is_taken(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 20)
    monkeypatch.setattr(loading, "Target", None)
    with pytest.raises(UserError) as error:
        await Engine.start(package, EngineOptions(), lines.append)
    assert error.value.code == "out_of_memory"
    assert [line.split(":")[0] for line in lines] == ["memory needed"]


def test_a_context_beyond_the_package_is_refused(package: Package) -> None:
    most = package.manifest.target.context_length
    assert slot_context(package, EngineOptions(context=most)) == most
    with pytest.raises(UserError, match=f"{most + 1} exceeds the package's {most}") as error:
        slot_context(package, EngineOptions(context=most + 1))
    assert error.value.param == "context"


@pytest.mark.parametrize(("has", "form"), [(False, "u8u8"), (True, "u8s8"), (False, None)])
async def test_integer_products_that_do_not_overflow_here_run(
    package: Package, has: bool, form: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "has_integer_dot_product", lambda: has)
    engine = await Engine.start(with_integer_form(package, form), EngineOptions(context=32))
    await engine.close()


async def test_integer_products_that_would_overflow_are_refused(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "has_integer_dot_product", lambda: False)
    with pytest.raises(UserError, match="overflow silently") as error:
        await Engine.start(with_integer_form(package, "u8s8"), EngineOptions(context=32))
    assert error.value.code == "processor_unsuitable"


def with_integer_form(package: Package, form: str | None) -> Package:
    target = dataclasses.replace(package.manifest.target, integer_form=form)
    return dataclasses.replace(
        package, manifest=dataclasses.replace(package.manifest, target=target)
    )
