"""The tables of a report: what each column shows, and its definition in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.peers.schema import PeersReport, Row
from bench.run.schema import ALL, Absent, Interval, Quantity
from bench.run.tables import shown


@dataclass(frozen=True, slots=True)
class Column:
    header: str
    definition: str
    show: Callable[[Row], str]


CONTESTANT = Column(
    "contestant", "engine, form of the weights, way to draft", lambda row: row.contestant
)
CATEGORY = Column("category", "of the prompts", lambda row: row.category)
TIME = Column(
    "ms/token",
    "all time over all tokens, from the prompt to the end of the answer, prefill included; ours by"
    " the client's clock over a WebSocket, peers' by a clock in their own process, behind"
    " tokenizing",
    lambda row: shown(row.time_per_token),
)
TTFT = Column("TTFT ms", "from the prompt to the first token, mean", lambda row: shown(row.ttft, 0))
TPOT = Column(
    "TPOT ms", "time behind the first token over the tokens behind it", lambda row: shown(row.tpot)
)
TAU = Column(
    "tau", "tokens behind the first over runs of the target, prefill apart", lambda r: shown(r.tau)
)
ALPHA = Column(
    "alpha",
    "accepted over verified draft tokens, as the engine counts them",
    lambda r: shown(r.alpha),
)
TOKENS = Column("tokens", "of all answers, without ends of sequence", lambda r: shown(r.tokens, 0))
AGREEMENT = Column(
    "agreement",
    "share of an engine's tokens that the fp32 model, given the same prompt and the answer so far,"
    " would have chosen: the fp32 model reads every answer once",
    lambda row: shown(row.agreement, 3),
)
COMMON = Column(
    "common",
    "share of the fp32 model's own greedy answers that the engine's follow up to the first"
    " difference",
    lambda row: shown(row.common, 3),
)
IDENTICAL = Column(
    "identical", "share of answers that are the fp32 model's", lambda row: shown(row.identical, 2)
)


def ratio_columns(basis: str) -> tuple[Column, Column]:
    def interval(row: Row) -> str:
        found = row.against[basis].interval
        if isinstance(found, Interval):
            return f"{found.low:.2f} to {found.high:.2f}"
        return shown(found)

    return (
        Column(
            "times ours",
            f"ms/token over that of {basis} on the same prompts; above 1 ours is faster",
            lambda row: shown(row.against[basis].ratio),
        ),
        Column("95 % interval", "of that: bootstrap over prompts, both answers together", interval),
    )


def overall(basis: str) -> tuple[Column, ...]:
    quality = (AGREEMENT, COMMON, IDENTICAL)
    return (CONTESTANT, TIME, *ratio_columns(basis), *quality, TTFT, TPOT, TAU, ALPHA, TOKENS)


def by_category(basis: str) -> tuple[Column, ...]:
    return (CONTESTANT, CATEGORY, TIME, *ratio_columns(basis), AGREEMENT, TTFT, TPOT, TAU)


def rows_of(columns: Sequence[Column], rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [tuple(column.show(row) for column in columns) for row in rows]


def together(report: PeersReport) -> list[Row]:
    """One row for each contestant, the fastest first, those without figures last."""

    def place(row: Row) -> tuple[bool, float]:
        time = row.time_per_token
        return (False, time.value) if isinstance(time, Quantity) else (True, 0.0)

    return sorted((row for row in report.rows if row.category == ALL), key=place)


def problems(report: PeersReport) -> list[tuple[str, str, str]]:
    """Name, word and reason of everything that was to be measured and has no time."""
    rows = [(row.contestant, row.time_per_token) for row in report.rows if row.category == ALL]
    rows += [(one.configuration, one.time_per_token) for one in report.tried]
    found = {
        (name, metric.absent.replace("_", " "), metric.why): None
        for name, metric in rows
        if isinstance(metric, Absent)
    }
    return list(found)
