"""Where the tokens of a delta came from, for who includes `speculation`."""

from __future__ import annotations

from typing import Any

from gateway.engine.marks import RoundTrace
from gateway.engine.requests import Delta
from gateway.http.timings import rounded


def provenance(delta: Delta) -> dict[str, Any]:
    """`source` in a word; `sources`, `ids`, `texts`, `token_rounds` and `token_ms` token by token;
    `rounds` are those that ended since the delta before."""
    drafted = [source for source in delta.sources if source != "target"]
    return {
        "source": drafted[0] if drafted else "target",
        "sources": list(delta.sources),
        "ids": list(delta.ids),
        "texts": [mark.text for mark in delta.marks],
        "token_rounds": [mark.round for mark in delta.marks],
        "token_ms": [rounded("ms", mark.ms) for mark in delta.marks],
        "round": delta.round,
        "verified": delta.verified,
        "rounds": [_round(trace) for trace in delta.rounds],
    }


def _round(trace: RoundTrace) -> dict[str, Any]:
    return {name: rounded(name, value) for name, value in trace._asdict().items()}
