"""Calibrations kept between starts, and whether one still holds on this machine now."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.engine.costs.calibration import Calibration, Runner, calibrate, check_points
from gateway.engine.costs.coefficients import Point, relative_errors
from gateway.engine.costs.shape import RunShape
from models.slots import Slot

log = logging.getLogger(__name__)

SCHEMA = 2
_STALE_SECONDS = 3600.0

_NEAR = 0.25
"""A machine that is as much slower or faster is the same one at another speed."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a calibration depends on. `package` is a digest of its files."""

    package: str
    provider: str
    threads: int
    onnxruntime: str
    processor: str
    context: int
    rows: int
    schema: int = SCHEMA

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A calibration, when it was measured, and whether it was kept since: then what was measured is
    `scaled` to the machine as it is now."""

    calibration: Calibration
    measured_at: str
    cached: bool = False
    scaled: float = 1.0


class CalibrationCache:
    """A directory of JSON files. What cannot be read or written is measured again, never fatal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def load(self, key: Key) -> Calibrated | None:
        """None where nothing usable is kept for `key`."""
        try:
            document = json.loads(self._path(key).read_bytes())
            return _read(document, key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("the kept calibration is of no use (%s): measuring again", error)
            return None

    def store(self, key: Key, calibrated: Calibrated) -> None:
        document = {
            "key": asdict(key),
            "measured_at": calibrated.measured_at,
            "points": [_written(point) for point in calibrated.calibration.points],
            "checks": [_written(point) for point in calibrated.calibration.checks],
        }
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _sweep(self.directory)
            write_whole(self._path(key), json.dumps(document, indent=1).encode())
        except OSError as error:
            log.warning("the calibration cannot be kept in %s: %s", self.directory, error)

    def _path(self, key: Key) -> Path:
        return self.directory / f"{key.digest()}.json"


def obtain(
    target: Runner, slots: Sequence[Slot], cache: CalibrationCache, key: Key, *, fresh: bool = False
) -> Calibrated:
    """What is kept, where two quick points say that it holds; else measured, and kept.

    `fresh` measures whatever is kept.
    """
    kept = None if fresh else cache.load(key)
    if kept is not None:
        factor = speed(kept.calibration, check_points(target, slots))
        if factor is not None:
            calibration = kept.calibration.scaled(factor)
            return Calibrated(calibration, kept.measured_at, cached=True, scaled=factor)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    measured = Calibrated(calibrate(target, slots), now)
    cache.store(key, measured)
    return measured


def speed(calibration: Calibration, points: Sequence[Point]) -> float | None:
    """How much longer runs take now than was measured; None where a point is too far off."""
    ratios = [1 / (1 + error) for error in relative_errors(calibration.coefficients(), points)]
    if any(abs(ratio - 1) > _NEAR for ratio in ratios):
        return None
    return math.prod(ratios) ** (1 / len(ratios))


def _read(document: Any, key: Key) -> Calibrated:
    """Raises `ValueError`, `TypeError` or `KeyError` where it is no calibration for `key`."""
    if document["key"] != asdict(key):
        raise ValueError("it is another machine's or package's")
    points, checks = (
        tuple(_point(each) for each in document[name]) for name in ("points", "checks")
    )
    calibration = Calibration(points, checks)
    if not any(shape.rows == 1 for shape, _ in points):
        raise ValueError("it has no run of one row")
    return Calibrated(calibration, datetime.fromisoformat(document["measured_at"]).isoformat())


def _written(point: Point) -> list[float]:
    shape, ms = point
    return [shape.rows, shape.tokens, shape.past, shape.work, ms]


def _point(values: Any) -> Point:
    rows, tokens, past, work, ms = values
    counts = [rows, tokens, past, work]
    if not all(type(each) is int and each >= 0 for each in counts) or rows < 1 or tokens < 1:
        raise ValueError("its shapes are no shapes")
    if type(ms) is not float or not 0 < ms < math.inf:
        raise ValueError("its times are no times")
    return RunShape(rows, tokens, past, work), ms


def _sweep(directory: Path) -> None:
    """Take away what writers that were killed have left; a living one is done within moments."""
    for left in directory.glob("*.partial"):
        if time.time() - left.stat().st_mtime > _STALE_SECONDS:
            left.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
