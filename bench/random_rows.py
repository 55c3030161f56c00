"""What `accept` takes on random logits: no target, any vocabulary."""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from bench.rows import HostRow, HostRows, host_row
from gateway.engine.requests import Rule
from models.draft import Draft, Proposal
from models.sampling.noise import choice_seed
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import accept, make_rule

_PROMPT, _ANSWER = 256, 64
_SEEDS = 8


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of sampling and verifying."""

    name: str
    sampling: Sampling
    rule: Rule = "coupled"


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of `scale` times standard normal logits, of which the graph would list `top_k`."""

    vocabulary: int
    scale: float
    width: int
    top_k: int


@dataclass(frozen=True, slots=True)
class AcceptTime:
    """Of one `accept`: microseconds, rows it processed, and whole rows it looked at."""

    mode: str
    vocabulary: int
    scale: float
    median_us: float
    rows: float
    opened: float


class Trial:
    """One request's sampler in mid-answer, and a draft for its rule.

    Under `coupled` the draft is what the rows find most likely, under `classic` it is sampled from
    their listed tokens: on flat rows even the best draft is soon rejected, on peaked ones it is
    accepted for long. Only rows that are reached are processed.
    """

    def __init__(self, rows: Sequence[HostRow], mode: Mode, generator: np.random.Generator) -> None:
        vocabulary = rows[0].vocab_size
        self.sampler = Sampler(mode.sampling, generator.integers(0, vocabulary, _PROMPT).tolist())
        # Some of what the rows find likely has been said, so that penalties have work to do.
        said = np.concatenate([row.ids[:4] for row in rows])[: _ANSWER // 2].tolist()
        rest = generator.integers(0, vocabulary, _ANSWER - len(said)).tolist()
        self.sampler.commit((*said, *rest))
        self.rows = HostRows(rows)
        self.rule = make_rule(mode.rule)
        self.draft = self._likely() if mode.rule == "coupled" else self._sampled()

    def accept(self) -> int:
        """Rows processed: one for each accepted token, and one for the bonus."""
        return accept(self.draft, self.rows, self.sampler, self.rule).accepted + 1

    def _likely(self) -> Draft:
        return Draft(tuple(int(row.ids[0]) for row in self.rows.rows[:-1]))

    def _sampled(self) -> Draft:
        tokens: list[int] = []
        proposals: list[Proposal] = []
        for row in self.rows.rows[:-1]:
            token, proposal = self.sampler.draft(row, tokens, shared=False)
            tokens.append(token)
            proposals.append(proposal)
        return Draft(tuple(tokens), proposals=tuple(proposals))


def measure(modes: Sequence[Mode], shape: Shape, repeats: int) -> list[AcceptTime]:
    """Every mode on the same logits, several seeds each, in turn `repeats` times over."""
    trials = _trials(modes, shape)
    times: dict[str, list[float]] = {name: [] for name in trials}
    for _ in range(repeats):
        for name, group in trials.items():
            for trial in group:
                started = time.perf_counter()
                trial.accept()
                times[name].append((time.perf_counter() - started) * 1e6)
    return [_summary(name, shape, group, times[name]) for name, group in trials.items()]


def profile(modes: Sequence[Mode], shape: Shape, repeats: int) -> str:
    """The 15 functions of the accept path that take longest, all modes together."""
    trials = [trial for group in _trials(modes, shape).values() for trial in group]
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(repeats):
        for trial in trials:
            trial.accept()
    profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(15)
    return text.getvalue().strip()


def _trials(modes: Sequence[Mode], shape: Shape) -> dict[str, list[Trial]]:
    generator = np.random.default_rng(shape.vocabulary)
    normal = generator.standard_normal((shape.width, shape.vocabulary), dtype=np.float32)
    rows = [host_row(row, shape.top_k) for row in np.float32(shape.scale) * normal]
    found: dict[str, list[Trial]] = {}
    for mode in modes:
        samplings = [
            replace(mode.sampling, seed=choice_seed(mode.sampling.seed or 0, index))
            for index in range(_SEEDS)
        ]
        found[mode.name] = [
            Trial(rows, replace(mode, sampling=sampling), generator) for sampling in samplings
        ]
    return found


def _summary(name: str, shape: Shape, group: Sequence[Trial], times: Sequence[float]) -> AcceptTime:
    before = sum(trial.sampler.opened for trial in group)
    rows = fmean(trial.accept() for trial in group)
    opened = (sum(trial.sampler.opened for trial in group) - before) / len(group)
    return AcceptTime(name, shape.vocabulary, shape.scale, median(times), rows, opened)
