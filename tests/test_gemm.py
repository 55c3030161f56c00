"""The choice of products: measured once, kept, and never a choice that does not run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from gateway.engine.costs import gemm
from gateway.engine.costs.cache import Key
from gateway.engine.costs.gemm import compare, decide, run_ms, undecided, with_gemm
from models.errors import UserError
from models.package import Package
from models.providers import DeviceOptions, Provider, select_provider
from models.target import Target
from tests.device_support import played

KEY = Key("p", "CUDA", 2, "1.0", "cpu", 64, 1)


def of_bits(package: Package) -> Package:
    target = dataclasses.replace(package.manifest.target, weight_type="int4")
    return dataclasses.replace(
        package, manifest=dataclasses.replace(package.manifest, target=target)
    )


def test_only_few_bits_on_cuda_are_undecided() -> None:
    assert undecided(played(), "int4")
    assert undecided(played(), "int8")
    assert not undecided(played(), "fp16")
    assert not undecided(played(DeviceOptions(gemm="default")), "int4")
    assert not undecided(select_provider("cpu", "cpu"), "int4")


def test_the_faster_ones_are_chosen_and_kept(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"default": 3.0, "fpa-intb": 2.0}
    asked: list[str] = []

    def timed(target: Target) -> float:
        asked.append(target.provider.use.gemm)
        return times[asked[-1]]

    monkeypatch.setattr(gemm, "run_ms", timed)
    four = of_bits(package)
    assert decide(played(), four, KEY, tmp_path, None).use.gemm == "fpa-intb"
    assert asked == ["default", "fpa-intb"]
    assert decide(played(), four, KEY, tmp_path, None).use.gemm == "fpa-intb"
    assert asked == ["default", "fpa-intb"], "the second start asks nobody"
    other = dataclasses.replace(KEY, package="another")
    times["default"] = 1.0
    assert decide(played(), four, other, tmp_path, None).use.gemm == "default"
    next(tmp_path.glob(f"*{KEY.digest()}*")).write_text("{")
    assert decide(played(), four, KEY, tmp_path, None).use.gemm == "default", "damaged: again"


@pytest.mark.parametrize(
    "problem",
    [
        UserError("no such kernel", code="graph_invalid"),
        RuntimeException("[ONNXRuntimeError] : 6 : CUBLAS failure 15: the kernel does not run"),
    ],
)
def test_what_does_not_run_is_not_chosen(problem: Exception) -> None:
    def measure(provider: Provider) -> float:
        if provider.use.gemm == "fpa-intb":
            raise problem
        return 2.0

    assert compare(played(), measure) == {"default": 2.0}


def test_nothing_is_decided_for_other_weights(package: Package, tmp_path: Path) -> None:
    provider = played()
    assert decide(provider, package, KEY, tmp_path, None) is provider
    assert list(tmp_path.iterdir()) == []


def test_times_are_those_of_real_runs(package: Package) -> None:
    provider = with_gemm(played(), "default")
    assert 0 < run_ms(Target(package, provider)) < 10_000
