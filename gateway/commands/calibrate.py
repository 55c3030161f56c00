"""What `outpace doctor --calibrate` measures and says: run times, and what they mean for drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gateway.engine.costs.break_even import break_even
from gateway.engine.costs.calibration import Calibration
from gateway.engine.costs.coefficients import Coefficients, Point
from gateway.engine.costs.shape import Load
from gateway.engine.engine import Engine
from gateway.engine.names import NGRAM, OFF
from gateway.engine.requests import GenerationRequest, Speculation
from gateway.fleet.sources import first_package
from gateway.settings import Settings
from models.errors import UserError
from models.package import load_package
from models.plot import Line, line_plot

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
_PROMPT, _TOKENS = 8, 40


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds throughout. `drafters` by name and length; those that could not be measured are
    `problems`. `overhead` is a round's time beside its runs."""

    calibration: Calibration
    drafters: Mapping[str, Mapping[int, float]]
    problems: Mapping[str, str]
    overhead: float


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> list[str]:
        every = [self.header, *self.rows]
        wide = [max(len(row[column]) for row in every) for column in range(len(self.header))]
        written = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, wide, strict=True))
            for row in every
        ]
        return [self.title, *(f"  {line}" for line in written)]


async def measure(settings: Settings) -> Figures:
    """Load the package and measure afresh. Raises `UserError` where it cannot run here."""
    engine = await Engine.start(
        load_package(first_package(settings.package)),
        settings.engine_options,
        recalibrate=True,
    )
    try:
        problems: dict[str, str] = {}
        for kind in engine.drafters.kinds:
            try:
                await engine.drafters.load(kind)
            except UserError as error:
                problems[kind] = error.message
        await _decode(engine)
        known = engine.status()
    finally:
        await engine.close()
    learned = [each for each in known.drafters if each.name != NGRAM]
    problems |= {each.name: each.problem for each in learned if each.problem is not None}
    times = {each.name: each.run_ms for each in learned if each.run_ms}
    return Figures(engine.calibrated.calibration, times, problems, engine.costs.overhead.ms)


async def _decode(engine: Engine) -> None:
    """Plain rounds of a stream that is alone, for the overhead."""
    speculation = Speculation(drafter=OFF, policy="off")
    count = min(_TOKENS, engine.context_length - _PROMPT)
    request = GenerationRequest(
        (0,) * _PROMPT, max_tokens=count, ignore_eos=True, speculation=speculation
    )
    async with engine.open(request) as generation:
        async for _ in generation:
            pass


def tables(figures: Figures) -> list[Table]:
    known = figures.calibration.coefficients()
    points = figures.calibration.points
    least = _least_past(figures)
    alone = [point for point in points if point[0].rows == 1]
    return [
        _times("A run of one row, by tokens", known, [p for p in alone if p[0].past == least]),
        _times("By rows", known, [p for p in points if p[0].rows > 1]),
        _times("By cached tokens", known, [p for p in alone if p[0].past > least]),
        _times("Runs that were not fitted", known, figures.calibration.checks),
        *([_drafters(figures.drafters)] if figures.drafters else []),
        _break_even(figures, known, least),
    ]


def meaning(figures: Figures) -> list[str]:
    """The coefficients in words."""
    known, errors = figures.calibration.coefficients(), figures.calibration.errors()
    worst = max(map(abs, errors), default=0.0)
    return [
        f"A row more costs {known.per_row:.3f} ms, 1000 cached tokens {1e3 * known.per_past:.3f} ms"
        f" and {1e3 * known.per_work:.4f} ms for every token of their row.",
        f"A round takes {figures.overhead:.3f} ms beside its runs, drafted or not.",
        f"The fit is off by {100 * worst:.1f} % at most where it was not fitted.",
        *(f"{name} could not be measured: {problem}" for name, problem in figures.problems.items()),
    ]


def as_json(figures: Figures) -> dict[str, Any]:
    def written(points: Sequence[Point]) -> list[dict[str, Any]]:
        return [{**shape._asdict(), "ms": ms} for shape, ms in points]

    known = figures.calibration.coefficients()
    thresholds = _thresholds(figures, known, _least_past(figures))
    return {
        "coefficients": asdict(known),
        "points": written(figures.calibration.points),
        "checks": written(figures.calibration.checks),
        "errors": figures.calibration.errors(),
        "drafters": {name: dict(times) for name, times in figures.drafters.items()},
        "problems": dict(figures.problems),
        "overhead_ms": figures.overhead,
        "break_even": {str(length): each for length, each in zip(LENGTHS, thresholds, strict=True)},
    }


def plot(figures: Figures) -> str:
    """All of it as one SVG document."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for shape, ms in figures.calibration.points:
        rows = "1 row" if shape.rows == 1 else f"{shape.rows} rows"
        name = f"{rows}, {shape.past // shape.rows} cached"
        curves.setdefault(name, []).append((shape.tokens, ms))
    lines = [Line(name, sorted(points)) for name, points in curves.items()]
    lines += [Line(name, sorted(times.items())) for name, times in figures.drafters.items()]
    return line_plot("Run times", "tokens of the run", "milliseconds", lines)


def _least_past(figures: Figures) -> int:
    return min(shape.past for shape, _ in figures.calibration.points if shape.rows == 1)


def _times(title: str, known: Coefficients, points: Sequence[Point]) -> Table:
    header = ("rows", "tokens", "cached", "measured ms", "fitted ms", "off %")
    rows = [
        (
            str(shape.rows),
            str(shape.tokens),
            str(shape.past),
            f"{ms:.3f}",
            f"{known.predict(shape):.3f}",
            f"{100 * (known.predict(shape) / ms - 1):+.1f}",
        )
        for shape, ms in points
    ]
    return Table(title, header, rows)


def _drafters(drafters: Mapping[str, Mapping[int, float]]) -> Table:
    lengths = sorted({length for times in drafters.values() for length in times})
    rows = [
        (name, *(f"{times[length]:.3f}" if length in times else "" for length in lengths))
        for name, times in drafters.items()
    ]
    return Table("Drafters, ms by length", ("", *map(str, lengths)), rows)


def _break_even(figures: Figures, known: Coefficients, least: int) -> Table:
    thresholds = _thresholds(figures, known, least)
    rows = [
        (str(length), *map(_share, found.values()))
        for length, found in zip(LENGTHS, thresholds, strict=True)
    ]
    title = (
        "From which acceptance of each token on a draft is faster than plain decoding\n"
        "  (one stream; n-grams cost nothing; never: not even where all of it is accepted)"
    )
    return Table(title, ("length", *thresholds[0]), rows)


def _thresholds(
    figures: Figures, known: Coefficients, cached: int
) -> list[dict[str, float | str | None]]:
    """For each of `LENGTHS`, by drafter: None where the drafter goes not so far."""
    plain = known.predict(Load(cached=cached).run(1)) + figures.overhead
    found: list[dict[str, float | str | None]] = []
    for length in LENGTHS:
        verify = known.predict(Load(cached=cached).run(1 + length)) + figures.overhead
        row: dict[str, float | str | None] = {}
        for name, times in {NGRAM: dict.fromkeys(LENGTHS, 0.0), **figures.drafters}.items():
            row[name] = None
            if length in times:
                alpha = break_even((verify + times[length]) / plain, length)
                row[name] = "never" if alpha is None else alpha
        found.append(row)
    return found


def _share(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.2f}"
