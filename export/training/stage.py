"""Many scripts played at once, as many of each kind as give it its share of answer tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from export.training.corpus import Conversation
from export.training.desk import Ask, Desk, Library, Script
from export.training.material import Material
from export.training.speech import Ids, Speech
from export.training.writing import Job, Written
from models.errors import UserError

HELD_SHARE = 0.03
_GUESS = 250.0
"""Answer tokens of a script, before one of its kind has ended."""

_BARREN = 25.0
"""Answer tokens that a script counts which kept nothing: its kind must not take all the time."""

_MOST_BARREN = 200
"""So many one after another mean that none will ever keep anything."""


@dataclass(frozen=True, slots=True)
class Part:
    """How conversations of a kind begin, and their share relative to other kinds."""

    start: Callable[[Desk], Script[None]]
    weight: float = 1.0


@dataclass(slots=True)
class Performance:
    """A script under way, and the answer tokens of its kind that it has kept."""

    kind: str
    script: Script[None]
    desk: Desk
    tokens: int = 0


@dataclass(slots=True)
class _Tally:
    """Of one kind: answer tokens kept, scripts that ended, of these barren ones, and scripts under
    way."""

    tokens: int = 0
    ended: int = 0
    barren: int = 0
    playing: int = 0

    @property
    def expected(self) -> float:
        """Answer tokens when all that are under way have ended."""
        each = self.tokens / self.ended if self.ended else _GUESS
        return self.tokens + self.playing * each + self.barren * _BARREN


class Stage:
    """Everything a script draws comes from `seed` and its number, and nothing from the clock."""

    def __init__(
        self,
        parts: Mapping[str, Part],
        speech: Speech,
        material: Material,
        seed: Sequence[int],
        context: int,
    ) -> None:
        self._parts = parts
        self._speech = speech
        self._material = material
        self._seed = tuple(seed)
        self._context = context
        self._shelf = Library()
        self._ready: deque[tuple[Performance, Ask]] = deque()
        self._tallies = {kind: _Tally() for kind in parts}
        self._begun = 0
        self._barren = 0

    @property
    def answer_tokens(self) -> int:
        """Of the kinds played, without texts that were only written to be asked about."""
        return sum(tally.tokens for tally in self._tallies.values())

    def jobs(self) -> Iterator[Job[Performance]]:
        """Asks of scripts under way, else of new ones; without end.

        Raises `UserError` (`context_too_short`) where no script comes to keep anything.
        """
        while True:
            self._begin_until_ready()
            performance, ask = self._ready.popleft()
            seed = int(performance.desk.draw.integers(1 << 53))
            sampling = replace(ask.sampling, seed=seed)
            yield Job(ask.prompt, ask.most, sampling, performance)

    def play(self, written: Written[Performance]) -> list[Conversation]:
        """Give a script what was written; the conversations that it kept thereupon."""
        return self._send(written.job.purpose, written.ids)

    def _begin_until_ready(self) -> None:
        while not self._ready:
            if self._barren >= _MOST_BARREN:
                raise UserError(
                    f"no prompt leaves room for an answer in a context of {self._context} tokens.",
                    code="context_too_short",
                    param="context",
                )
            self._begin()

    def _begin(self) -> None:
        kind = min(self._parts, key=self._lag)
        draw = np.random.default_rng([*self._seed, self._begun])
        self._begun += 1
        held = bool(draw.random() < HELD_SHARE)
        desk = Desk(draw, self._speech, self._material, self._shelf, self._context, held)
        self._tallies[kind].playing += 1
        self._send(Performance(kind, self._parts[kind].start(desk), desk), None)

    def _lag(self, kind: str) -> float:
        return self._tallies[kind].expected / self._parts[kind].weight

    def _send(self, performance: Performance, ids: Ids | None) -> list[Conversation]:
        """Play on from what was written (None: from the beginning) to the next ask, or the end."""
        script, tally = performance.script, self._tallies[performance.kind]
        try:
            ask = next(script) if ids is None else script.send(ids)
        except StopIteration:
            ended = True
        else:
            ended = False
            self._ready.append((performance, ask))
        kept = performance.desk.take_kept()
        tokens = sum(each.answer_tokens for each in kept if each.kind == performance.kind)
        performance.tokens += tokens
        tally.tokens += tokens
        if ended:
            tally.playing -= 1
            tally.ended += 1
            tally.barren += performance.tokens == 0
            self._barren = self._barren + 1 if performance.tokens == 0 else 0
        return kept
