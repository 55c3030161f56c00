"""Which configuration of a peer is its best: all are tried on a few prompts.

First every form of the weights without drafting. Then every way to draft, on the fastest form and
on the fastest one that agrees with the fp32 model at least as well as ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.peers.agreement import Agreements
from bench.peers.catalogue import Configuration, Peer, configurations
from bench.peers.turns import Record

Measure = Callable[[Sequence[Configuration]], Awaitable[tuple[list[Record], Agreements]]]


@dataclass(frozen=True, slots=True)
class Tried:
    """One configuration in the selection. `ms` per token and `agreement` are None without
    figures."""

    configuration: Configuration
    record: Record
    ms: float | None
    agreement: float | None


async def try_all(peer: Peer, measure: Measure, least_agreement: float) -> list[Tried]:
    everything = configurations(peer)
    tried = await _tried([one for one in everything if one.plain], measure)
    forms = {one.configuration.weights.name for one in best(tried, least_agreement)}
    rest = [one for one in everything if not one.plain and one.weights.name in forms]
    return tried + await _tried(rest, measure)


def best(tried: Sequence[Tried], least_agreement: float) -> list[Tried]:
    """The fastest, and the fastest that agrees well enough where that is another one."""
    timed = sorted((one for one in tried if one.ms is not None), key=lambda one: one.ms or 0.0)
    close = [one for one in timed if (one.agreement or 0.0) >= least_agreement]
    found = timed[:1] + close[:1]
    return found[:1] if len(found) == 2 and found[0] is found[1] else found


async def _tried(members: Sequence[Configuration], measure: Measure) -> list[Tried]:
    if not members:
        return []
    records, agreements = await measure(members)
    return [
        Tried(one, record, ms_per_token(record), agreement_of(record, agreements))
        for one, record in zip(members, records, strict=True)
    ]


def ms_per_token(record: Record) -> float | None:
    """All time over all tokens; None for a record without every figure."""
    tokens = sum(len(turn.answer.ids) for turn in record.turns)
    if record.absent is not None or not tokens:
        return None
    return sum(turn.answer.ms for turn in record.turns) / tokens


def agreement_of(record: Record, agreements: Agreements) -> float | None:
    """The share of all its tokens that the fp32 model would have chosen."""
    known = [
        agreements[record.name, turn.question.id]
        for turn in record.turns
        if (record.name, turn.question.id) in agreements
    ]
    tokens = sum(one.tokens for one in known)
    return sum(one.agreed for one in known) / tokens if tokens else None
