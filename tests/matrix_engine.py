"""The engine that the clients of the matrix talk to: a real one, watched.

It is the tiny model with room for long answers. What is asked of it is written down, and can be
asked again without a client in between.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.engine.engine import Engine
from gateway.engine.generation import Generation
from gateway.engine.observer import RoundSeen, Unobserved
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Delta, GenerationRequest, TokenLogprob
from models.constraints.source import ConstraintSource
from models.errors import UserError
from models.package import load_package
from models.target import Row, RowResult
from tests.clients_support import FULL
from tests.engine_support import OFF

SLOWLY = "slowly"
SLOW_ROUND = 0.02
"""Seconds more of each run of an answer that is to be left: alone it would take ten and more."""

SHORT_ROUND = 0.002
"""The same of any other: what is said of rounds that take no time comes at once, and no client
would see that it is streamed."""

RESULT = "<tool_response>\n"
"""Begins what a function gave; the marks alone are in the words that tell of functions."""

BRIEF = ConstraintSource("regex", "[a-z]{8,16}")
USER, END, ASSISTANT = "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came, the text of its prompt, and how many choices were wanted."""

    text: str
    request: GenerationRequest
    n: int


@dataclass(slots=True)
class Left:
    """A slow answer: how it ended, None while it runs, and its rounds until then."""

    rounds: int = 0
    ended: str | None = None


@dataclass
class Watch(Unobserved):
    """Counts rounds; `stray` are those that came while no answer ran."""

    active: int = 0
    stray: int = 0
    slow: Left | None = None
    left: list[Left] = field(default_factory=list)

    def started(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        self.active += 1

    def round(self, seen: RoundSeen) -> None:
        self.stray += self.active == 0
        if self.slow is not None:
            self.slow.rounds += 1

    def ended(self, reason: str, seconds: float) -> None:
        self.active -= 1
        if self.slow is not None:
            self.slow.ended, self.slow = reason, None


class WatchedEngine:
    """As the wire sees an engine. A prompt with `SLOWLY` has a long and slow answer, one with
    `FULL` is turned away; what is said of a function's result is brief. `forced` is what an answer
    must be that has to call a function, where a client cannot say that it has to."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine = engine
        self.watch = watch
        self._run = engine.service._run
        engine.service._run = self._slowly
        self.asked: list[Asked] = []
        self.forced: ConstraintSource | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _slowly(self, rows: Sequence[Row]) -> list[RowResult]:
        time.sleep(SHORT_ROUND if self.watch.slow is None else SLOW_ROUND)
        return self._run(rows)

    def open(self, request: GenerationRequest) -> Generation:
        return self.open_choices(request, 1)[0]

    def open_choices(self, request: GenerationRequest, n: int) -> list[Generation]:
        text = self._engine.tokenizer.decode(request.prompt)
        form = request.constraint
        # That of calls which may be made leaves all else free.
        free = form is None or form.text.startswith("start: TEXT?")
        if FULL in text:
            raise UserError("the queue is full.", code="queue_full")
        if SLOWLY in text:
            request = replace(request, max_tokens=None, ignore_eos=True)
            self.watch.slow = Left()
            self.watch.left.append(self.watch.slow)
        elif "<tools>" in text and RESULT not in text and free:
            request = replace(request, constraint=self.forced)
        elif RESULT in text and free:
            request = replace(request, constraint=BRIEF)
        self.asked.append(Asked(text, request, n))
        return self._engine.open_choices(request, n)

    def of(self, marked: str) -> list[Asked]:
        """The requests whose prompts have this text."""
        return [asked for asked in self.asked if marked in asked.text]

    async def answer(self, request: GenerationRequest) -> tuple[str, list[TokenLogprob]]:
        """What plain decoding says to it, whatever would stop it."""
        plain = replace(request, stop=(), speculation=OFF)
        text, logprobs = "", []
        async with self._engine.open(plain) as generation:
            async for event in generation:
                if isinstance(event, Delta):
                    text += event.text
                    logprobs += event.logprobs
        return text, logprobs


@asynccontextmanager
async def watched_engine(package: Path) -> AsyncIterator[WatchedEngine]:
    watch = Watch()
    engine = await Engine.start(
        load_package(package), EngineOptions(slots=2, queue=8), observer=watch
    )
    try:
        yield WatchedEngine(engine, watch)
    finally:
        await engine.close()
