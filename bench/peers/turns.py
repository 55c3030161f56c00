"""Contestants answer the same prompts in turn; whoever waits is stopped.

All have their models loaded. A prompt is answered by everyone before the next one begins, in an
order that rotates, so that a machine that gets slower gets slower for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.machine import resident_bytes
from bench.peers.contestants import (
    Answer,
    Contestant,
    PeerError,
    Prompt,
    cpu_ms,
    stop,
    wake,
)
from bench.prompts import Question
from bench.run.schema import Absent
from bench.setup import progress

Start = Callable[[], AbstractAsyncContextManager[Contestant]]
_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Entrant:
    """Someone who may take part. `start` raises `PeerError` where that cannot be."""

    name: str
    start: Start


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer. `others_ms` is the processor time that all who waited used meanwhile."""

    question: Question
    answer: Answer
    others_ms: float


@dataclass(slots=True)
class Record:
    """All that was seen of an entrant. `absent` says why there are no figures."""

    name: str
    turns: list[Turn] = field(default_factory=list)
    absent: Absent | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None


async def contest(
    entrants: Sequence[Entrant],
    kept: Sequence[Record],
    warm_up: Prompt,
    prompts: Sequence[Prompt],
    max_tokens: int,
) -> None:
    """Notes everything in `kept`, a record for each entrant; one that fails leaves the others
    alone."""
    records = {record.name: record for record in kept}
    async with AsyncExitStack() as stack:
        present: list[Contestant] = []
        for entrant in entrants:
            contestant = await _entered(stack, entrant, records[entrant.name])
            if contestant is None:
                continue
            try:
                await contestant.answer(warm_up, min(max_tokens, _WARM_UP_TOKENS))
                present.append(contestant)
            except PeerError as error:
                _lost(records[entrant.name], error)
            finally:
                stop(contestant)
        for index, prompt in enumerate(prompts):
            progress(f"peers: prompt {index + 1} of {len(prompts)}")
            start = index % max(1, len(present))
            for contestant in [*present[start:], *present[:start]]:
                record = records[contestant.name]
                await _turn(record, contestant, present, prompt, max_tokens)
                if record.absent is not None:
                    present.remove(contestant)


async def _entered(stack: AsyncExitStack, entrant: Entrant, record: Record) -> Contestant | None:
    try:
        contestant = await stack.enter_async_context(entrant.start())
    except PeerError as error:
        _lost(record, error)
        return None
    # Woken before it is asked to end, whatever happens until then.
    stack.callback(wake, contestant)
    record.settings, record.versions = dict(contestant.settings), dict(contestant.versions)
    return contestant


async def _turn(
    record: Record,
    contestant: Contestant,
    present: Sequence[Contestant],
    prompt: Prompt,
    max_tokens: int,
) -> None:
    others = [other for other in present if other is not contestant]
    try:
        before = sum(cpu_ms(other) for other in others)
        wake(contestant)
        answer = await contestant.answer(prompt, max_tokens)
        after = sum(cpu_ms(other) for other in others)
        record.memory_bytes = resident_bytes(contestant.pid)
        record.turns.append(Turn(prompt.question, answer, after - before))
    except PeerError as error:
        _lost(record, error)
    finally:
        stop(contestant)


def _lost(record: Record, error: PeerError) -> None:
    record.absent = error.absent
    progress(f"peers: {record.name} is {error.absent.absent}: {error.absent.why}")
