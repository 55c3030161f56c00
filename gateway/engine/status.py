"""What an engine is doing, and what it has learnt of its drafters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """What is known of one drafter.

    `survival` (by depth, greedy chains) and `run_ms` (by tokens asked for) are as measured here so
    far; `draft_n` counts the verified tokens of all answers that ended. `failures` counts drafts
    that ended in an error; `problem` is what was last wrong.
    """

    name: str
    loaded: bool
    checkpoint: str | None = None
    reads: str | None = None
    longest: int | None = None
    draft_n: int = 0
    draft_n_accepted: int = 0
    survival: tuple[float, ...] = ()
    run_ms: Mapping[int, float] = field(default_factory=dict)
    failures: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A snapshot. `drafter` is what requests get that name none; `run_ms` is by packed width."""

    model: str
    device: str
    exact: bool
    differences: tuple[str, ...]
    slots: int
    free_slots: int
    kv_tokens: int
    running: int
    waiting: int
    memory_bytes: int
    run_ms: Mapping[int, float]
    drafter: str
    drafters: tuple[DrafterStatus, ...]
