"""What a part of the check works with, and what it hands back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.gpu.packages import CONTRIB_FORM, ROWS, package_of
from bench.gpu.shapes import Shape, shape_of
from bench.report import Promise, Table
from models.errors import UserError
from models.package import Package
from models.providers import (
    DEFAULT_OPTIONS,
    DeviceOptions,
    Provider,
    cache_options,
    select_provider,
)

PLAYED = ("CPUExecutionProvider",)


@dataclass(frozen=True, slots=True)
class Site:
    """`device` is `cuda`, or `cpu`: then the processor plays the GPU, on smaller shapes, and only
    the device's name and its memory's are others. `demo` is a package of a real model."""

    device: str
    directory: Path
    quick: bool = False
    demo: Path | None = None

    def provider(self, use: DeviceOptions = DEFAULT_OPTIONS) -> Provider:
        if self.device == "cpu":
            return Provider("cuda", PLAYED, "cpu", use=use)
        return select_provider("cuda", "cuda", use)

    def reference(self) -> Provider:
        """The processor, on the same graphs, with nothing captured."""
        return Provider("cuda", PLAYED, "cpu", use=DeviceOptions(graphs=False))

    def tensorrt(self) -> Provider | None:
        """None where there is none."""
        use = DEFAULT_OPTIONS
        if self.device == "cpu":
            return Provider("tensorrt", PLAYED, "cpu", use=use)
        try:
            provider = select_provider("tensorrt", "tensorrt", use)
        except UserError:
            return None
        caches = cache_options(self.directory / "tensorrt")
        return replace(provider, options=caches)

    def shape(self, name: str) -> Shape:
        return shape_of(name, on_cpu=self.device == "cpu", quick=self.quick)

    def package(
        self,
        name: str,
        weight_type: str,
        rows: tuple[int, ...] = ROWS,
        form: str = CONTRIB_FORM,
    ) -> Package:
        return package_of(self.directory / "packages", self.shape(name), weight_type, rows, form)

    @property
    def coarse(self) -> bool:
        """Whether few points will do: what a processor takes for them means nothing."""
        return self.quick or self.device == "cpu"

    @property
    def repeats(self) -> int:
        return 3 if self.coarse else 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """`figures` are plain JSON data."""

    figures: Mapping[str, Any]
    checks: Sequence[Promise] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = field(default_factory=tuple)


PartRun = Callable[[Site], Outcome]


@dataclass(frozen=True, slots=True)
class Part:
    """`seconds` is what it may take at most, where as much is left."""

    name: str
    meaning: str
    seconds: float
    run: PartRun


def least_ms(function: Callable[[], object], repeats: int) -> float:
    """The least time of some calls, after one that does not count."""
    function()
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        best = min(best, (time.perf_counter() - started) * 1e3)
    return best


def median_ms(function: Callable[[], object], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append((time.perf_counter() - started) * 1e3)
    return sorted(times)[len(times) // 2]
