"""Helpers for tests of the engine: engines on the tiny package, references, odd drafters."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.engine.costs.cache import Calibrated
from gateway.engine.costs.calibration import Calibration
from gateway.engine.costs.shape import RunShape
from gateway.engine.engine import Engine
from gateway.engine.generation import Generation
from gateway.engine.learned import Learned
from gateway.engine.options import EngineOptions
from gateway.engine.requests import (
    Delta,
    Finished,
    GenerationRequest,
    PromptScored,
    Speculation,
    TokenLogprob,
)
from models.draft import Draft, Drafter
from models.drafters.cascade import Cascade
from models.memory import memory_need
from models.package import Package, load_package
from models.probe import ProbeResult
from models.providers import select_provider
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.slots import Slot, SlotPool
from models.target import Row, RowResult, Target
from models.verification import accept, make_rule
from tests.patience import HOLD, PATIENCE
from tests.patience import until as until

OFF = Speculation(drafter="off", policy="off")
CONTEXT = 200
GREEDY = Sampling()
FLAT_COSTS = {2: 1.0, 8: 1.1, 32: 1.4}
FLAT = Calibrated(
    Calibration(tuple((RunShape(1, tokens), ms) for tokens, ms in FLAT_COSTS.items())), "never"
)
"""Wide runs are cheap, as on a real target: `auto` drafts on any match."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A whole answer: its prompt's scores, what its deltas add up to, and its last event."""

    deltas: tuple[Delta, ...]
    finished: Finished
    scored: PromptScored | None = None

    @property
    def ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.ids]

    @property
    def sources(self) -> list[str]:
        return [source for delta in self.deltas for source in delta.sources]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def logprobs(self) -> list[TokenLogprob]:
        return [entry for delta in self.deltas for entry in delta.logprobs]


class GatedTarget(Target):
    """A target whose runs can be recorded, held, slowed down and made to fail.

    `runs` are the rows of every run. While `gate` is clear a run waits, and for `seconds` always. A
    run whose rows satisfy `broken` raises.
    """

    seconds = 0.0

    def __init__(self, package: Package) -> None:
        provider = select_provider("cpu", package.manifest.target.device)
        super().__init__(package, provider)
        self.gate = threading.Event()
        self.gate.set()
        self.runs: list[list[Row]] = []
        self.broken: Callable[[Sequence[Row]], bool] = lambda rows: False

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        self.runs.append(list(rows))
        assert self.gate.wait(HOLD), "a test forgot to open the gate"
        if self.seconds:
            time.sleep(self.seconds)
        if self.broken(rows):
            raise RuntimeError("the kernel failed")
        return super().run(rows)


class TestEngine(Engine):
    """An engine whose drafters a test can choose."""

    __test__ = False
    drafter_of: Callable[[], Drafter] | None = None
    target: GatedTarget
    pool_slots: list[Slot]

    def make_drafters(self, request: GenerationRequest, slot: Slot, sampler: Sampler) -> Cascade:
        if self.drafter_of is None:
            return super().make_drafters(request, slot, sampler)
        greedy = request.sampling.greedy
        return self.drafters.combine([self.drafter_of()], request.speculation, greedy=greedy)


def build_engine(package: Package, learned: Learned | None = None, **options: int) -> TestEngine:
    """An engine as `Engine.start` makes it, without probing and measuring."""
    chosen = EngineOptions(device="cpu", **{"context": CONTEXT, **options})
    assert chosen.context is not None
    target = GatedTarget(package)
    slots = target.make_slots(chosen.slots, chosen.context)
    engine = TestEngine(
        package,
        chosen,
        target,
        SlotPool(slots, can_copy=True, shared=chosen.share_prefixes),
        ProbeResult(exact=True, tokens=0, differences=()),
        FLAT,
        memory_need(package, chosen.slots, chosen.context, chosen.prefill_chunk),
        learned,
    )
    engine.target, engine.pool_slots = target, slots
    return engine


@asynccontextmanager
async def running(
    path: Path, rows: Sequence[int] = (), learned: Learned | None = None, **options: int
) -> AsyncIterator[TestEngine]:
    """An engine on the package at `path`, with only the graphs for `rows` where given."""
    package = load_package(path)
    engine = build_engine(with_rows(package, rows) if rows else package, learned, **options)
    try:
        yield engine
    finally:
        engine.target.gate.set()
        await engine.close()


def with_rows(package: Package, rows: Sequence[int]) -> Package:
    """The same package as if it had been exported for these row counts only."""
    target = package.manifest.target
    graphs = {key: name for key, name in target.graphs.items() if int(key) in rows}
    assert len(graphs) == len(rows), "the tiny package has these graphs"
    manifest = dataclasses.replace(
        package.manifest, target=dataclasses.replace(target, graphs=graphs)
    )
    return dataclasses.replace(package, manifest=manifest)


async def read(generation: Generation) -> Answered:
    """All events of an entered generation."""
    deltas: list[Delta] = []
    finished: Finished | None = None
    scored: PromptScored | None = None
    async for event in generation:
        assert finished is None, "nothing follows the last event"
        if isinstance(event, Delta):
            deltas.append(event)
        elif isinstance(event, PromptScored):
            assert scored is None, "a prompt is scored once"
            assert not deltas, "and before it is answered"
            scored = event
        else:
            finished = event
    assert finished is not None
    return Answered(tuple(deltas), finished, scored)


async def ask(engine: Engine, prompt: Sequence[int], **fields: object) -> Answered:
    """The whole answer to `prompt`; end-of-sequence is ignored unless the test says otherwise."""
    known: dict[str, object] = {"ignore_eos": True, "max_tokens": 24, **fields}
    request = GenerationRequest(tuple(prompt), **known)  # type: ignore[arg-type]
    async with engine.open(request) as generation, asyncio.timeout(PATIENCE):
        return await read(generation)


def make_prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Random tokens, the second half repeating the first so that n-grams are found."""
    half = np.random.default_rng(seed).integers(0, 200, (length + 1) // 2).tolist()
    return tuple((half + half)[:length])


class Reference:
    """The target's own answers, one token a run: no drafts, no chunks, no company."""

    def __init__(self, package: Package, context: int = CONTEXT) -> None:
        self._target = Target(package, select_provider("cpu", package.manifest.target.device))
        (self._slot,) = self._target.make_slots(1, context)

    def answer(self, prompt: Sequence[int], count: int, sampling: Sampling = GREEDY) -> list[int]:
        slot = self._slot
        slot.truncate(0)
        sampler, rule = Sampler(sampling, prompt, ()), make_rule("coupled")
        tokens, answer = tuple(prompt), list[int]()
        while len(answer) < count:
            (result,) = self._target.run([Row(slot, tokens, logits=1)])
            slot.commit(tokens)
            tokens = (accept(Draft(), result, sampler, rule).bonus,)
            sampler.commit(tokens)
            answer += tokens
        return answer

    def log_probabilities(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """[len(tokens), V]: of what comes behind each of them."""
        self._slot.truncate(0)
        (result,) = self._target.run([Row(self._slot, tuple(tokens), logits=len(tokens))])
        logits = np.stack([result.whole(index) for index in range(len(tokens))]).astype(np.float64)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def kv(self, tokens: Sequence[int]) -> list[bytes]:
        """The K/V of `tokens`, prefilled whole."""
        self._slot.truncate(0)
        self._target.run([Row(self._slot, tuple(tokens), logits=0)])
        self._slot.commit(tokens)
        return kv_bytes(self._slot, len(tokens))


def kv_bytes(slot: Slot, length: int) -> list[bytes]:
    """Every K/V buffer's bytes for the first `length` tokens."""
    return [buffer.numpy()[:, :, :length].tobytes() for pair in slot.buffers for buffer in pair]


class ScriptedDrafter:
    """Proposes from a continuation it was given: right where `wrong` is 0, else off by `wrong`."""

    name = "scripted"

    def __init__(self, continuation: Sequence[int], vocab_size: int, wrong: int = 0) -> None:
        self._script = [(token + wrong) % vocab_size for token in continuation]
        self._at = 0
        self.budgets: list[int] = []
        self.committed: list[int] = []

    def reset(self, tokens: Sequence[int]) -> None:
        self._at = 0

    def propose(self, budget: int) -> Draft:
        self.budgets.append(budget)
        return Draft(tokens=tuple(self._script[self._at : self._at + budget]), source=self.name)

    def commit(self, tokens: Sequence[int]) -> None:
        self._at += len(tokens)
        self.committed += tokens


@dataclass(frozen=True, slots=True)
class DenseRow:
    """A `TargetRow` of given logits."""

    logits: NDArray[np.float32]
    most: int = 8

    @property
    def ids(self) -> NDArray[np.int64]:
        return np.argsort(-self.logits, kind="stable")[: self.most]

    @property
    def values(self) -> NDArray[np.float32]:
        return self.logits[self.ids]

    @property
    def logsumexp(self) -> float:
        return float(np.log(np.exp(self.logits.astype(np.float64)).sum()))

    @property
    def vocab_size(self) -> int:
        return len(self.logits)

    def whole(self) -> NDArray[np.float32]:
        return self.logits


@dataclass(frozen=True, slots=True)
class DenseRows:
    rows: Sequence[DenseRow]

    def row(self, index: int) -> DenseRow:
        return self.rows[index]


class SpellingTarget:
    """Says `script` behind a prompt of `prompt_length` tokens, whatever it is asked."""

    def __init__(self, prompt_length: int, script: Sequence[int], vocab_size: int) -> None:
        self._begin = prompt_length - 1
        self._script = list(script)
        self._vocab_size = vocab_size

    def run(self, rows: Sequence[Row]) -> list[DenseRows]:
        return [DenseRows([self._behind(end) for end in self._wanted(row)]) for row in rows]

    def _wanted(self, row: Row) -> range:
        end = row.past + len(row.tokens)
        return range(end - row.logits, end)

    def _behind(self, place: int) -> DenseRow:
        logits = np.zeros(self._vocab_size, np.float32)
        logits[self._script[(place - self._begin) % len(self._script)]] = 9.0
        return DenseRow(logits)


class OnePathDrafter(ScriptedDrafter):
    """Proposes its chain as a tree."""

    def propose(self, budget: int) -> Draft:
        draft = super().propose(budget)
        return draft._replace(parents=tuple(range(-1, len(draft.tokens) - 1)))


def is_idle(engine: Engine) -> bool:
    status = engine.status()
    return (status.free_slots, status.running, status.waiting) == (status.slots, 0, 0)


MOST = 30
"""Tokens of an answer where a test does not say."""


async def ask_at_once(
    engine: Engine, prompts: Sequence[tuple[int, ...]], **fields: object
) -> list[Answered]:
    calls = [ask(engine, prompt, **{"max_tokens": MOST, **fields}) for prompt in prompts]
    return list(await asyncio.gather(*calls))


def label(speculation: Speculation) -> str:
    return f"{speculation.policy}{speculation.length or ''}"
