"""Deltas that waited together."""

from __future__ import annotations

from gateway.engine.requests import Delta


def merge(deltas: list[Delta]) -> Delta:
    """Consecutive deltas as one; its round is the last one's."""
    if len(deltas) == 1:
        return deltas[0]
    return Delta(
        text="".join(delta.text for delta in deltas),
        ids=tuple(token for delta in deltas for token in delta.ids),
        sources=tuple(source for delta in deltas for source in delta.sources),
        round=deltas[-1].round,
        logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
        verified=sum(delta.verified for delta in deltas),
        marks=tuple(mark for delta in deltas for mark in delta.marks),
        rounds=tuple(trace for delta in deltas for trace in delta.rounds),
    )
