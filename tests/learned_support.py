"""Learned drafters for tests of the engine: no graphs, but threads, waiting and failures."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

from gateway.engine.requests import GenerationRequest, Speculation
from models.draft import Draft, Drafter, Later, at_once
from models.package import DrafterSpec
from models.sampling.sampler import Sampler
from models.slots import Slot
from tests.drafters_support import HEAD
from tests.patience import HOLD

LONGEST = 4

PLAIN_PROMPT = tuple(range(3, 60))
"""No token comes twice: n-grams find nothing in it."""

COUNT = 24


def eagle(length: int | None = None, **fields: object) -> Speculation:
    known: dict[str, object] = {"drafter": "eagle3", "policy": "fixed" if length else "auto"}
    return Speculation(**{**known, "length": length, **fields})  # type: ignore[arg-type]


def opened(**fields: object) -> GenerationRequest:
    known: dict[str, object] = {"ignore_eos": True, "max_tokens": COUNT, **fields}
    return GenerationRequest(PLAIN_PROMPT, **known)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """How a drafter was asked for."""

    kind: str
    sampled: bool
    shared: bool
    branches: int


class FakeLearned:
    """Drafters of `kinds` that know `script`, the whole answer, off by `wrong` tokens.

    While `gate` is clear a proposal waits; `threads` are those that proposals ran on. `before` is
    called in every proposal of a request, on its thread; `load` calls `loading`.
    """

    def __init__(
        self, kinds: Sequence[str] = ("eagle3",), script: Sequence[int] = (), wrong: int = 0
    ) -> None:
        self._kinds = tuple(kinds)
        self.script = list(script)
        self.wrong = wrong
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[str] = set()
        self.loads: list[str] = []
        self.made: list[Made] = []
        self.proposed: list[int] = []
        self.slots: list[Slot] = []
        self.before: Callable[[], None] = lambda: None
        self.loading: Callable[[], None] = lambda: None

    @property
    def kinds(self) -> tuple[str, ...]:
        return self._kinds

    def spec(self, kind: str) -> DrafterSpec:
        return dataclasses.replace(HEAD, kind=kind, longest=LONGEST)

    def drafts_trees(self, kind: str) -> bool:
        return False

    def load(self, kind: str) -> None:
        self.loads.append(kind)
        self.loading()

    def drafter(
        self, kind: str, slot: Slot, sampler: Sampler | None, *, shared: bool, branches: int = 1
    ) -> Drafter:
        assert kind in self.loads, "loaded before it is used"
        self.made.append(Made(kind, sampler is not None, shared, branches))
        return _Scripted(self, kind, slot, calibrating=sampler is None and slot.context == 128)


class _Scripted:
    runs_graph = True

    def __init__(self, learned: FakeLearned, name: str, slot: Slot, *, calibrating: bool) -> None:
        self.name = name
        self._learned = learned
        self._slot = slot
        self._calibrating = calibrating
        self._at = 0

    def reset(self, tokens: Sequence[int]) -> None:
        self._at = 0

    def commit(self, tokens: Sequence[int], later: Later = at_once) -> None:
        self._at += len(tokens)

    def propose(self, budget: int) -> Draft:
        learned = self._learned
        learned.threads.add(threading.current_thread().name)
        if not self._calibrating:
            learned.proposed.append(budget)
            learned.slots.append(self._slot)
            learned.before()
            assert learned.gate.wait(HOLD), "a test forgot to open the gate"
        known = learned.script[self._at : self._at + min(budget, LONGEST)]
        tokens = tuple((token + learned.wrong) % 300 for token in known)
        return Draft(tokens, confidence=(0.9,) * len(tokens), source=self.name)
