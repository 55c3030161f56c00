"""The tables of a report: what each column shows, and its definition in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.run.plan import FEWEST_TOKENS
from bench.run.schema import ALL, Absent, Interval, Metric, Quantity, RunCell


@dataclass(frozen=True, slots=True)
class Column:
    header: str
    definition: str
    show: Callable[[RunCell], str]


@dataclass(frozen=True, slots=True)
class Layout:
    """A table with a row for each cell."""

    title: str
    columns: tuple[Column, ...]


def shown(metric: Metric, places: int = 2) -> str:
    """The number; or the word that stands for none, with the figure that was kept."""
    if isinstance(metric, Quantity):
        return f"{metric.value:.{places}f}"
    kept = "" if metric.kept is None else f" ({metric.kept.value:.{places}f})"
    return metric.absent.replace("_", " ") + kept


def _interval(interval: Interval | Absent) -> str:
    if isinstance(interval, Absent):
        return shown(interval)
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _survival(survival: Sequence[Metric] | Absent) -> str:
    if isinstance(survival, Absent):
        return shown(survival)
    return " ".join(shown(share) for share in survival[:8])


def _spread(spread: Mapping[str, Metric], *names: str) -> str:
    values = list(dict.fromkeys(shown(spread[name], 1) for name in names))
    return " / ".join(values)


SETTING = Column(
    "setting",
    "drafter, policy with its draft length where one was set, and the rule where it is not the"
    " default; `off` is plain decoding",
    lambda cell: cell.setting,
)
CATEGORY = Column(
    "category", "of the prompts; `all` is every prompt", lambda cell: cell.workload.category
)
PROMPTS = Column("prompts", "number of prompts", lambda cell: str(cell.workload.prompts))
TPOT = Column(
    "TPOT ms",
    "time from the first arrival to the last, by the client's clock, over the tokens behind the"
    " first arrival; the median of a prompt's repeats, then the mean over prompts; answers under"
    f" {FEWEST_TOKENS} tokens are not timed",
    lambda cell: shown(cell.metrics.tpot),
)
RATIO = Column(
    "of off",
    "mean TPOT over that of `off`, on the prompts that were timed in both; below 1 is faster",
    lambda cell: shown(cell.baseline.ratio),
)
INTERVAL = Column(
    "95 % interval",
    "of that ratio: bootstrap over prompts, each drawn with its times in both settings",
    lambda cell: _interval(cell.baseline.interval),
)
IDENTICAL = Column(
    "same as off",
    "share of answers that are those of `off`, token for token",
    lambda cell: shown(cell.baseline.identical, 3),
)
LOSSLESS = Column(
    "lossless",
    "whether the rule leaves the target's distribution as it is",
    lambda cell: (
        shown(cell.speculation.lossless)
        if isinstance(cell.speculation.lossless, Absent)
        else ("yes" if cell.speculation.lossless else "no")
    ),
)
DRAFT = Column("draft ms", "drafting, per round", lambda cell: shown(cell.metrics.draft_time))
VERIFY = Column(
    "verify ms",
    "the target's run, per round; with several streams the run is theirs together",
    lambda cell: shown(cell.metrics.verify_time),
)
OVERHEAD = Column(
    "overhead ms",
    "decoding time, by the gateway's clock, that is neither, per round",
    lambda cell: shown(cell.metrics.overhead_time),
)
TAU = Column(
    "tau", "tokens a round advances, bonus token included", lambda cell: shown(cell.metrics.tau)
)
PROPOSED = Column(
    "proposed",
    "draft tokens verified per round",
    lambda cell: shown(cell.speculation.proposed_length),
)
ACCEPTED = Column(
    "accepted",
    "draft tokens accepted per round",
    lambda cell: shown(cell.metrics.accepted_length),
)
ALPHA = Column(
    "alpha",
    "accepted over verified draft tokens; those never verified are not in it",
    lambda cell: shown(cell.metrics.alpha),
)
SURVIVAL = Column(
    "survival by depth",
    "of the rounds that verified a token at a depth, the share that accepted one there; up to"
    " depth 8",
    lambda cell: _survival(cell.metrics.survival),
)
TTFT = Column(
    "TTFT ms 50/90",
    "percentiles of the time from request to first arrival, over answers of whose prompt at most"
    " half was in the gateway's cache",
    lambda cell: _spread(cell.metrics.ttft, "p50", "p90"),
)
GAPS = Column(
    "ITL ms 50/90/99",
    "percentiles of the time between arrivals with tokens, by the client's clock; tokens of one"
    " round arrive together",
    lambda cell: _spread(cell.metrics.inter_token_latency, "p50", "p90", "p99"),
)
THROUGHPUT = Column(
    "tokens/s",
    "tokens of all streams over the time in which they were answered, prefill included",
    lambda cell: shown(cell.metrics.throughput, 1),
)
OFFS = Column(
    "off tokens/s",
    "the same of `off`",
    lambda cell: shown(cell.baseline.throughput, 1),
)

SPEED = Layout(
    "Time per token",
    (SETTING, CATEGORY, PROMPTS, TPOT, RATIO, INTERVAL, IDENTICAL, LOSSLESS),
)
ROUNDS = Layout(
    "Rounds",
    (SETTING, CATEGORY, DRAFT, VERIFY, OVERHEAD, TAU, PROPOSED, ACCEPTED, ALPHA, SURVIVAL),
)
LATENCY = Layout("Latency and throughput", (SETTING, CATEGORY, TTFT, GAPS, THROUGHPUT, OFFS))
LAYOUTS = (SPEED, ROUNDS, LATENCY)


def rows_of(layout: Layout, cells: Sequence[RunCell]) -> list[tuple[str, ...]]:
    """A setting without any figure has one row, not one for each category."""
    return [
        tuple(column.show(cell) for column in layout.columns)
        for cell in cells
        if cell.workload.category == ALL or isinstance(cell.workload.output_tokens, Quantity)
    ]


def problems(cells: Sequence[RunCell]) -> list[tuple[str, str, str]]:
    """Setting, word and reason of every setting without a time per token or a ratio."""
    found: dict[tuple[str, str, str], None] = {}
    for cell in cells:
        ratio = [cell.baseline.ratio] if cell.drafter.parts else []
        for metric in (cell.metrics.tpot, *ratio):
            if isinstance(metric, Absent):
                found[cell.setting, metric.absent.replace("_", " "), metric.why] = None
    return list(found)


def by_load(cells: Sequence[RunCell]) -> dict[tuple[float, int], list[RunCell]]:
    """Cells by temperature and concurrency."""
    groups: dict[tuple[float, int], list[RunCell]] = {}
    for cell in cells:
        key = (cell.sampling.temperature, cell.workload.concurrency)
        groups.setdefault(key, []).append(cell)
    return groups


def load_name(temperature: float, concurrency: int) -> str:
    drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    return f"{drawn}, {concurrency} stream{'' if concurrency == 1 else 's'} at once"
