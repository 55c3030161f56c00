"""Who answers prompts, and what an answer is."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.prompts import Question
from bench.run.schema import Absent

_TICKS = os.sysconf("SC_CLK_TCK")


class PeerError(Exception):
    """Someone cannot answer: `absent` says how that is called, and why."""

    def __init__(self, absent: Absent) -> None:
        super().__init__(absent.why)
        self.absent = absent


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question as every contestant gets it: rendered by the checkpoint's chat template."""

    question: Question
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """`ids` without the end of sequence. `ms` from the prompt to the end of the answer. The counts
    of draft tokens and of the target's runs (prefill apart) are None where nobody tells them."""

    ids: tuple[int, ...]
    ms: float
    ttft_ms: float
    drafted: int | None = None
    accepted: int | None = None
    rounds: int | None = None


class Contestant(Protocol):
    """A process that has loaded a model. `settings` is how it runs it, `versions` of what."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    @property
    def versions(self) -> Mapping[str, str]: ...

    @property
    def pid(self) -> int: ...

    async def answer(self, prompt: Prompt, max_tokens: int) -> Answer:
        """Greedily. Raises `PeerError`."""


def stop(contestant: Contestant) -> None:
    """It keeps its memory and gets no processor, not even to spin, until it is woken."""
    _signal(contestant, signal.SIGSTOP)


def wake(contestant: Contestant) -> None:
    _signal(contestant, signal.SIGCONT)


def _signal(contestant: Contestant, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended, and will say so when it is asked
        os.kill(contestant.pid, number)


def cpu_ms(contestant: Contestant) -> float:
    """Processor time that its process has used so far."""
    text = Path(f"/proc/{contestant.pid}/stat").read_text(encoding="utf-8")
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e3 / _TICKS
