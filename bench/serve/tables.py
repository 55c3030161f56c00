"""The tables of a run under load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.run.plan import FEWEST_TOKENS
from bench.run.schema import Absent, Interval, Metric
from bench.run.tables import shown
from bench.serve.changes import LEAST_CHANGE, SMOOTHED
from bench.serve.figures import SHARES
from bench.serve.schema import LoadCell, PhaseCell, ServeReport
from bench.sheets import Sheet

_SPREAD = " / ".join(f"{share}" for share in SHARES)
_POLICY = {
    "load": "streams that ask again as soon as they are answered, or requests per second that"
    " arrive whatever becomes of them",
    "policy": "of speculation, with its draft length where one was set; `off` is plain decoding",
}
_GOODPUT = {
    **_POLICY,
    "goodput": "answers per second whose TTFT and TPOT both met their targets",
    "good": "share of all requests, refused and failed ones among them, that these are",
    "answered": "number of requests",
    "refused": "by the gateway, because its queue was full: an outcome of its own, no error",
    "failed": "by an error",
    "tokens/s": "of all answers, over the time from a window's first request to its last answer",
    "of off": "tokens/s over that of plain decoding under the same load; above 1 is faster",
    "95 % interval": "of it: bootstrap over windows, each with that of plain decoding",
}
_TIMES = {
    **_POLICY,
    f"TTFT ms {_SPREAD}": "percentiles of the time from a request to its first token; a request of"
    " a rate counts from when it was due",
    f"TPOT ms {_SPREAD}": "of an answer: from its first arrival to its last, over the tokens"
    " behind the first arrival",
    f"queue ms {_SPREAD}": "time in the gateway until the request had its slot",
    "cached": "share of the prompts' tokens that the gateway still had; before a window every slot"
    " is given a prompt of no question, the same ones under every policy",
    "verified": "draft tokens verified in a round",
    "tau": "tokens a round advanced, the target's own among them",
}
_PHASES = {
    "phase": "in the order in which they followed each other",
    "streams": "at once; the first one goes through all phases",
    "policy": _POLICY["policy"],
    "tokens/s": "of all streams, while the phase lasted: prefills are in it",
    "of off": "tokens/s over that of plain decoding in the same phase; above 1 is faster",
    "95 % interval": "of it: bootstrap over repeats",
    "TPOT ms": "decoding alone: median over the answers of all streams that had their first and"
    " their last arrival within the phase, of the time between the two over the tokens behind the"
    f" first; answers under {FEWEST_TOKENS} tokens are not timed",
    "TPOT of off": "mean over that of plain decoding, on the prompts that were decoded within the"
    " phase under both in the same repeat, the median of its repeats for each; below 1 is faster",
    "TPOT interval": "95 %, of it: bootstrap over prompts, each drawn with its times under both",
    "cached": "share of these answers' prompts that the gateway still had; before the first phase"
    " every slot is given a prompt of no question, the same ones under every policy",
    "rounds": "of the first stream in the phase, mean of the repeats",
    "width": "draft tokens verified in a round of the first stream, in the later half of the phase",
    "rounds until": f"the mean width over {SMOOTHED} rounds had come halfway from that of the"
    f" phase before to this one; missing where they differ by less than {LEAST_CHANGE:g}",
}


def sheets_of(report: ServeReport) -> list[Sheet]:
    """Those that have rows."""
    sheets = (
        Sheet("Goodput and throughput", _GOODPUT, [_goodput(cell) for cell in report.loads]),
        Sheet("Times and rounds", _TIMES, [_times(cell) for cell in report.loads]),
        Sheet("A changing load", _PHASES, [_phase(cell) for cell in report.phases]),
    )
    return [sheet for sheet in sheets if sheet.rows]


def problems(report: ServeReport) -> list[tuple[str, str, str]]:
    """Policy, word and reason of what has no throughput."""
    cells: Sequence[LoadCell | PhaseCell] = [*report.loads, *report.phases]
    found = {
        (cell.policy, cell.throughput.absent.replace("_", " "), cell.throughput.why): None
        for cell in cells
        if isinstance(cell.throughput, Absent)
    }
    return list(found)


def _goodput(cell: LoadCell) -> tuple[str, ...]:
    return (
        cell.load,
        cell.policy,
        shown(cell.goodput),
        shown(cell.good),
        str(cell.answered),
        str(cell.refused),
        str(cell.failed),
        shown(cell.throughput, 1),
        shown(cell.ratio),
        _interval(cell.interval),
    )


def _times(cell: LoadCell) -> tuple[str, ...]:
    spreads = (cell.ttft, cell.tpot, cell.queue)
    return (
        cell.load,
        cell.policy,
        *(_spread(spread) for spread in spreads),
        shown(cell.cached),
        shown(cell.verified),
        shown(cell.tau),
    )


def _phase(cell: PhaseCell) -> tuple[str, ...]:
    return (
        str(cell.phase),
        str(cell.streams),
        cell.policy,
        shown(cell.throughput, 1),
        shown(cell.ratio),
        _interval(cell.interval),
        shown(cell.tpot, 1),
        shown(cell.tpot_ratio),
        _interval(cell.tpot_interval),
        shown(cell.cached),
        shown(cell.rounds, 0),
        shown(cell.settled),
        shown(cell.rounds_until, 0),
    )


def _spread(spread: Mapping[str, Metric]) -> str:
    return " / ".join(dict.fromkeys(shown(metric, 1) for metric in spread.values()))


def _interval(interval: Interval | Absent) -> str:
    if isinstance(interval, Absent):
        return shown(interval)
    return f"{interval.low:.2f} to {interval.high:.2f}"
