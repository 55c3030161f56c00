"""Which products of weights of few bits are faster on this GPU: measured once, then kept."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gateway.engine.costs.cache import Key, write_whole
from models.package import Package
from models.providers import Provider
from models.rows import Row
from models.slots import Slot
from models.target import Target

log = logging.getLogger(__name__)

CHOICES = ("default", "fpa-intb")
WIDTHS = (2, 4, 8, 16)
_WEIGHTS = ("int4", "int8")
_REPEATS = 5
_CONTEXT = 64

Measure = Callable[[Provider], float]
"""Milliseconds of some runs with the provider; raises `UserError` where it cannot run."""


def undecided(provider: Provider, weight_type: str) -> bool:
    return provider.device == "cuda" and provider.use.gemm == "auto" and weight_type in _WEIGHTS


def decide(
    provider: Provider, package: Package, key: Key, directory: Path, threads: int | None
) -> Provider:
    """The provider with the faster products; as it is where there is nothing to decide."""
    if not undecided(provider, package.manifest.target.weight_type):
        return provider

    def measure(candidate: Provider) -> float:
        return run_ms(Target(package, candidate, threads))

    path = directory / f"gemm-{key.digest()}.json"
    choice = _kept(path)
    if choice is None:
        times = compare(provider, measure)
        choice = min(times, key=lambda each: times[each])
        log.info("products of %s: %s", package.manifest.name, times)
        _keep(path, choice, times)
    return with_gemm(provider, choice)


def compare(provider: Provider, measure: Measure) -> dict[str, float]:
    """Milliseconds by choice, of those that run. The usual ones must; what others fail with is the
    device's, or that there are none."""
    times = {CHOICES[0]: measure(with_gemm(provider, CHOICES[0]))}
    for choice in CHOICES[1:]:
        try:
            times[choice] = measure(with_gemm(provider, choice))
        except Exception as error:  # ONNX Runtime's, in loading or in running
            log.warning("%s products do not run: %s", choice, error)
    return times


def with_gemm(provider: Provider, choice: str) -> Provider:
    return replace(provider, use=replace(provider.use, gemm=choice))


def run_ms(target: Target) -> float:
    """The sum over `WIDTHS` of the least time of a run of one row."""
    (slot,) = target.make_slots(1, _CONTEXT)
    return sum(_least_ms(target, slot, width) for width in WIDTHS)


def _least_ms(target: Target, slot: Slot, width: int) -> float:
    row = Row(slot, (0,) * width, logits=width)
    times: Sequence[float] = [_timed(target, row) for _ in range(_REPEATS)]
    return min(times)


def _timed(target: Target, row: Row) -> float:
    started = time.perf_counter()
    target.run([row])
    return (time.perf_counter() - started) * 1e3


def _kept(path: Path) -> str | None:
    try:
        choice = json.loads(path.read_bytes())["choice"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("the kept choice of products is of no use (%s): measuring again", error)
        return None
    return choice if choice in CHOICES else None


def _keep(path: Path, choice: str, times: Mapping[str, float]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"choice": choice, "ms": dict(times)}, indent=1).encode())
    except OSError as error:
        log.warning("the choice of products cannot be kept in %s: %s", path.parent, error)
