"""The processor's features, and what follows from them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from models import processor
from models.processor import (
    cpu_flags,
    has_integer_dot_product,
    integer_form,
    processor_count,
    processor_name,
)


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        ({"avx2", "fma"}, False),
        (set(), False),
        ({"avx2", "avx_vnni"}, True),
        ({"avx512f", "avx512_vnni"}, True),
        ({"avx512_bf16", "amx_int8"}, True),
    ],
)
def test_integer_dot_products_and_forms_follow_the_flags(
    flags: set[str], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "cpu_flags", lambda: frozenset(flags))
    assert has_integer_dot_product() is has
    assert integer_form() == ("u8s8" if has else "u8u8")


def test_processors_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5})
    assert processor_count() == 3


def test_flags_are_read_as_the_system_writes_them(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "model name : avx512_vnni in name\nflags\t\t: fpu avx2 avx_vnni\nbugs\t: none\n"
    )
    assert cpu_flags(cpuinfo) == {"fpu", "avx2", "avx_vnni"}
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert cpu_flags(cpuinfo) == frozenset()
    cpuinfo.unlink()
    assert cpu_flags(cpuinfo) == frozenset()


def test_the_processors_name_is_the_first_that_linux_gives(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n")
    assert processor_name(cpuinfo) == "Some CPU @ 2 GHz"
    cpuinfo.write_text("processor : 0\n")
    assert processor_name(cpuinfo)
    assert processor_name(tmp_path / "missing")
