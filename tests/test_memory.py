"""Memory is computed before it is taken, and refused with the figures when it does not fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from models import memory
from models.drafters.state import DrafterState
from models.errors import UserError
from models.memory import (
    PAD_TOKENS,
    MemoryNeed,
    available_bytes,
    drafter_weight_bytes,
    format_bytes,
    memory_need,
    require_drafter_memory,
    require_memory,
    slot_bytes,
)
from models.package import load_package
from models.providers import select_provider
from models.slots import make_slot
from tests.drafters_support import DRAFT_MODEL, HEAD


def test_a_slot_takes_the_bytes_that_were_announced(tiny_package: Path) -> None:
    spec = load_package(tiny_package).manifest.target
    slot = make_slot(0, spec, 50, select_provider("cpu", "cpu"))
    taken = sum(buffer.numpy().nbytes for pair in slot.buffers for buffer in pair)
    assert slot_bytes(spec, 50) == taken


def test_half_precision_takes_half(tiny_package: Path) -> None:
    spec = load_package(tiny_package).manifest.target
    half = dataclasses.replace(spec, kv_type="fp16")
    assert 2 * slot_bytes(half, 50) == slot_bytes(spec, 50)


def test_the_need_grows_with_slots_context_and_width(tiny_package: Path) -> None:
    package = load_package(tiny_package)
    need = memory_need(package, slots=2, context=64, widest=16)
    assert need.kv == 2 * slot_bytes(package.manifest.target, 64)
    assert need.weights >= package.manifest.files[package.manifest.target.weights].bytes
    assert need.total == need.weights + need.kv + need.work
    assert memory_need(package, slots=4, context=64, widest=16).kv == 2 * need.kv
    assert memory_need(package, slots=2, context=128, widest=16).work > need.work
    assert memory_need(package, slots=2, context=64, widest=32).work > need.work


def test_what_drafters_keep_is_counted(tiny_package: Path) -> None:
    """Features of every token, and the drafters' own K/V, for every slot."""
    package = load_package(tiny_package)
    plain = memory_need(package, slots=2, context=64, widest=16)
    manifest = package.manifest
    target = dataclasses.replace(manifest.target, features={"hidden": 64, "taps": 192})
    manifest = dataclasses.replace(manifest, target=target, drafters=(HEAD, DRAFT_MODEL))
    need = memory_need(dataclasses.replace(package, manifest=manifest), 2, 64, 16)
    assert need.features == 2 * (64 + PAD_TOKENS) * (64 + 192) * 4
    states = [
        DrafterState(spec, "fp32", 64, select_provider("cpu", "cpu")) for spec in manifest.drafters
    ]
    taken = [
        sum(buffer.numpy().nbytes for pair in state.buffers for buffer in pair) for state in states
    ]
    assert need.drafters == 2 * sum(taken)
    assert need.total == plain.total + need.features + need.drafters
    assert "features 0 MiB, drafters' K/V 0 MiB" in need.describe()
    assert "features" not in plain.describe()


def test_a_drafter_that_does_not_fit_is_refused_by_name(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = load_package(tiny_package)
    weights = package.manifest.files[package.manifest.target.weights].bytes
    spec = dataclasses.replace(HEAD, weights=(package.manifest.target.weights,))
    needed = drafter_weight_bytes(package, spec)
    assert needed == weights * (1 + 2 + 1)
    tables = package.manifest.tokenizer
    shared = dataclasses.replace(spec, weights=(*spec.weights, tables))
    extra = package.manifest.files[tables].bytes
    assert drafter_weight_bytes(package, shared) == needed + extra
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    with pytest.raises(UserError, match="the drafter eagle3 needs") as refused:
        require_drafter_memory(package, spec)
    assert (refused.value.code, refused.value.param) == ("out_of_memory", "speculation.drafter")
    monkeypatch.setattr(memory, "available_bytes", lambda: needed)
    require_drafter_memory(package, spec)


def test_a_need_that_does_not_fit_is_refused_with_the_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need = MemoryNeed(weights=1 << 30, kv=3 << 29, work=1 << 20)
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 << 30)
    with pytest.raises(UserError) as refused:
        require_memory(need)
    assert (refused.value.code, refused.value.param) == ("out_of_memory", "slots")
    for figure in ("2.5 GiB", "weights 1.0 GiB", "K/V 1.5 GiB", "work 1 MiB", "only 2.0 GiB"):
        assert figure in refused.value.message
    monkeypatch.setattr(memory, "available_bytes", lambda: need.total)
    require_memory(need)
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    require_memory(need)


def test_available_memory_is_read_from_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  999 kB\nMemFree:  1 kB\nMemAvailable:  12 kB\nCached:  5 kB\n")
    monkeypatch.setattr(memory, "Path", lambda _: meminfo)
    assert available_bytes() == 12 * 1024
    meminfo.write_text("MemTotal:  999 kB\n")
    assert available_bytes() is None
    meminfo.unlink()
    assert available_bytes() is None


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 MiB"), (3 << 20, "3 MiB"), (1 << 30, "1.0 GiB"), (7 << 29, "3.5 GiB")],
)
def test_bytes_are_written_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
