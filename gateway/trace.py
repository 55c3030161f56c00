"""Requests while they run: what the log, the status and the metrics say of them.

A trace holds numbers and names, never what a client or the model said.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from gateway.engine.requests import Delta, Event, Finished, GenerationRequest, Timings

log = logging.getLogger("gateway.access")

CURRENT: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""That of the request which the running task belongs to."""

SANE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
LEFT = 499
"""Status of a request whose client left before it was answered."""


@dataclass(slots=True, eq=False)
class Progress:
    """One answer of a request: how far it is."""

    drafter: str
    policy: str
    prompt_tokens: int
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    timings: Timings | None = None

    @classmethod
    def of(cls, request: GenerationRequest) -> Progress:
        speculation = request.speculation
        return cls(
            drafter=speculation.drafter if speculation.drafts else "off",
            policy=speculation.policy if speculation.drafts else "off",
            prompt_tokens=len(request.prompt),
        )

    def note(self, event: Event) -> None:
        if isinstance(event, Delta):
            self.tokens += len(event.ids)
            self.rounds = max(self.rounds, event.round)
            self.drafted += event.verified
            self.accepted += len(event.sources) - event.sources.count("target")
        elif isinstance(event, Finished):
            self.tokens = event.usage.completion_tokens
            self.rounds = event.timings.rounds
            self.drafted = event.timings.draft_n
            self.accepted = event.timings.draft_n_accepted
            self.timings = event.timings
            self.drafter, self.policy = event.timings.drafter, event.timings.policy

    @property
    def decoded(self) -> float:
        """Tokens of its rounds; the first token is the prompt's."""
        if self.timings is not None and self.timings.tau is not None:
            return self.timings.tau * self.rounds
        return max(0, self.tokens - 1)


@dataclass(slots=True, eq=False)
class Trace:
    """One request. `key` is an opaque name of whose key let it in; `connection` the id of the
    socket that it came over. `code` is that of the error that it was last told."""

    id: str
    method: str
    path: str
    key: str | None = None
    connection: str | None = None
    status: int | None = None
    code: str | None = None
    answers: list[Progress] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @property
    def milliseconds(self) -> float:
        return (time.perf_counter() - self.started) * 1e3

    @property
    def tokens(self) -> int:
        return sum(answer.tokens for answer in self.answers)

    @property
    def tau(self) -> float | None:
        rounds = sum(answer.rounds for answer in self.answers)
        return sum(answer.decoded for answer in self.answers) / rounds if rounds else None

    def described(self) -> dict[str, Any]:
        """As the log and the status write it; what does not apply is left out."""
        known: dict[str, Any] = {
            "request_id": self.id,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "ms": round(self.milliseconds, 1),
            "key": self.key,
            "connection": self.connection,
            "code": self.code,
        }
        if self.answers:
            tau = self.tau
            known |= {
                "tokens": self.tokens,
                "tau": None if tau is None else round(tau, 2),
                "drafter": self.answers[0].drafter,
            }
        return {name: value for name, value in known.items() if value is not None}


class Traces:
    """Those of the requests that run now."""

    def __init__(self) -> None:
        self._running: dict[Trace, None] = {}

    def __iter__(self) -> Iterator[Trace]:
        return iter(list(self._running))

    @contextmanager
    def running(self, trace: Trace, level: int = logging.INFO) -> Iterator[Trace]:
        """What is logged within the block names the request; at its end comes its access line."""
        self._running[trace] = None
        token = CURRENT.set(trace)
        try:
            yield trace
        except BaseException:
            trace.status = trace.status or LEFT
            raise
        finally:
            log.log(level, "%s", _line(trace), extra={"fields": trace.described()})
            CURRENT.reset(token)
            del self._running[trace]


def request_id(offered: str | None = None) -> str:
    """That which the client gave, if it is sane; else a new one."""
    if offered is not None and SANE_ID.fullmatch(offered):
        return offered
    return f"req_{secrets.token_hex(12)}"


def _line(trace: Trace) -> str:
    known = trace.described()
    parts = [trace.method, trace.path, str(trace.status or "-"), f"{known['ms']:.1f} ms"]
    names = ("tokens", "tau", "drafter", "key", "code", "connection")
    return " ".join((*parts, *(f"{name}={known[name]}" for name in names if name in known)))
