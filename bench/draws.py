"""Answers of three tokens drawn by rounds of drafting and verifying, many times over."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.enumeration import joint
from bench.goodness import p_value
from bench.tiny_model import RowsBehind, TinyModel, place_of
from models.draft import Draft, Proposal
from models.sampling.distribution import Distribution, Exact, TargetRow
from models.sampling.noise import Purpose, exponentials
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import accept, make_rule

LENGTH = 3
PROMPT = (1, 4, 7, 5, 5)

_DEPTH = 2
_BRANCHES = ((3,), (1, 1, 0))
"""Of a tree: children of the root, then of each of these."""


STEPS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "top-k": {"top_k": 7},
        "top-p": {"top_p": 0.85},
        "min-p": {"min_p": 0.06},
        "penalties": {
            "repetition_penalty": 1.4,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.4,
        },
        "bias": {"logit_bias": ((2, 1.5), (5, -1.0), (9, -100.0))},
        "narrow top-k": {"top_k": 4},
        "repetition": {"repetition_penalty": 1.6},
        "presence": {"presence_penalty": 1.2},
        "frequency": {"frequency_penalty": 0.9},
        "rewards": {"repetition_penalty": 0.8, "presence_penalty": -0.6},
    }
)
"""Steps of processing by name. The first top-k is more than the host sees of a row."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """`sampled` drafts are drawn from a q of their own, others are certain (one-hot)."""

    rule: str
    tree: bool
    sampled: bool
    temperature: float
    steps: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        shape = "tree" if self.tree else "chain"
        return f"{self.rule} {shape}" if self.sampled else f"{self.rule} one-hot {shape}"

    @property
    def processing(self) -> str:
        return ", ".join([f"temperature {self.temperature:g}", *self.steps])

    @property
    def name(self) -> str:
        return f"{self.method}, {self.processing}"

    def sampling(self, seed: int = 0) -> Sampling:
        chosen = {name: value for step in self.steps for name, value in STEPS[step].items()}
        return Sampling(temperature=self.temperature, seed=seed, **chosen)


@dataclass(frozen=True, slots=True)
class Drawn:
    """How often each answer came [V, V, V], and what it took."""

    counts: NDArray[np.int64]
    rounds: int
    accepted: int
    opened: int


Key = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True)
class Memory:
    """What was computed before: nothing here depends on a seed.

    `opened` counts how often a whole row was needed, whether or not it was remembered.
    """

    distributions: dict[Key, Distribution] = field(default_factory=dict)
    siblings: dict[tuple[Key, tuple[int, ...]], Proposal] = field(default_factory=dict)
    opened: int = 0

    def openable(self, known: Distribution) -> Callable[[], Exact] | None:
        """Opens the whole row of `known` at once: later its sampler would have committed more."""
        if known._open is None:
            return None
        whole = known._open()

        def count() -> Exact:
            self.opened += 1
            return whole

        return count


class RememberingSampler(Sampler):
    """Processes a row once for all samples that share its `memory`.

    What is remembered is never resolved: each sample starts from bounds.
    """

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], seed: int, memory: Memory
    ) -> None:
        super().__init__(sampling, prompt)
        self.seed = seed
        self.memory = memory
        self.answer: tuple[int, ...] = ()

    def distribution(self, row: TargetRow, ahead: Sequence[int] = ()) -> Distribution:
        key = (id(row), self.answer, tuple(ahead))
        known = self.memory.distributions.get(key)
        if known is None:
            known = super().distribution(row, ahead)
            if not known.exact:
                known._open = self.memory.openable(known)
            self.memory.distributions[key] = known
        if known.exact:
            return known
        return Distribution(known.ids, known.weights, known.sure, known.bounds, known._open)

    def commit(self, tokens: Sequence[int]) -> None:
        super().commit(tokens)
        self.answer += tuple(tokens)


def draw_answers(
    configuration: Configuration, target: TinyModel, drafter: TinyModel, samples: int
) -> Drawn:
    """`samples` answers, each with a seed of its own; the same ones whenever it is called."""
    counts = np.zeros((target.vocab_size,) * LENGTH, dtype=np.int64)
    sampling, memory, rounds, accepted = configuration.sampling(), Memory(), 0, 0
    first = zlib.crc32(configuration.name.encode()) << 20
    for seed in range(first, first + samples):
        sampler = RememberingSampler(sampling, PROMPT, seed, memory)
        rule = make_rule(configuration.rule)
        while len(sampler.answer) < LENGTH:
            draft = propose(configuration, drafter, sampler)
            rows = RowsBehind(target, sampler.answer, draft)
            outcome = accept(draft, rows, sampler, rule)
            sampler.commit(outcome.tokens(draft.tokens))
            rounds += 1
            accepted += outcome.accepted
        counts[sampler.answer[:LENGTH]] += 1
    return Drawn(counts, rounds, accepted, memory.opened)


def exact_answers(configuration: Configuration, target: TinyModel) -> NDArray[np.float64]:
    """The probability of every answer [V, V, V]."""
    table: list[list[float]] = target.logits.tolist()

    def logits(answer: tuple[int, ...]) -> list[float]:
        return table[place_of(answer, target.vocab_size)]

    return joint(logits, target.vocab_size, LENGTH, configuration.sampling(), PROMPT)


def judge(
    configuration: Configuration, target: TinyModel, drafter: TinyModel, samples: int
) -> tuple[float, Drawn]:
    """The p-value of the answers drawn, and the answers."""
    drawn = draw_answers(configuration, target, drafter, samples)
    return p_value(drawn.counts, exact_answers(configuration, target)), drawn


def propose(configuration: Configuration, drafter: TinyModel, sampler: RememberingSampler) -> Draft:
    """As deep as a round can use, one token deeper for every fourth seed: past the answer's end."""
    most = LENGTH - len(sampler.answer) - (sampler.seed % 4 != 0)
    depth = min(_DEPTH, most)
    if configuration.tree:
        return _tree(configuration, drafter, sampler, depth)
    return _chain(configuration, drafter, sampler, depth)


def _chain(
    configuration: Configuration, drafter: TinyModel, sampler: RememberingSampler, depth: int
) -> Draft:
    tokens, proposals = list[int](), list[Proposal]()
    for _ in range(depth):
        row = drafter.row((*sampler.answer, *tokens))
        if configuration.sampled:
            shared = configuration.rule == "coupled"
            token, proposal = sampler.draft(row, tuple(tokens), shared=shared)
            proposals.append(proposal)
        else:
            token = int(row.ids[0])
        tokens.append(token)
    return Draft(tuple(tokens), proposals=tuple(proposals) if configuration.sampled else None)


def _tree(
    configuration: Configuration, drafter: TinyModel, sampler: RememberingSampler, depth: int
) -> Draft:
    tokens, parents, proposals = list[int](), list[int](), list[Proposal]()
    level: list[tuple[int, tuple[int, ...]]] = [(-1, ())]
    for branches in _BRANCHES[:depth]:
        grown = list[tuple[int, tuple[int, ...]]]()
        for (node, path), count in zip(level, branches, strict=False):
            row = drafter.row((*sampler.answer, *path))
            if configuration.sampled:
                added, drawn = _siblings(configuration, sampler, row, path, count)
                proposals.extend(drawn)
            else:
                added = row.ids[:count].tolist()
            for token in added:
                grown.append((len(tokens), (*path, token)))
                tokens.append(token)
                parents.append(node)
        level = grown
    kept = tuple(proposals) if configuration.sampled else None
    return Draft(tuple(tokens), tuple(parents), kept)


def _siblings(
    configuration: Configuration,
    sampler: RememberingSampler,
    row: TargetRow,
    path: tuple[int, ...],
    count: int,
) -> tuple[list[int], list[Proposal]]:
    """Drawn without replacement: each with its q given the earlier ones.

    One race of exponentials orders all tokens, and the next to arrive among those that are left is
    distributed as a draw from what is left.
    """
    purpose = Purpose.TOKEN if configuration.rule == "coupled" else Purpose.DRAFT
    listed = sampler.distribution(row, path).listed()
    times = exponentials(sampler.seed, sampler.position + len(path), purpose, listed.ids)
    first = np.argsort(times / listed.weights)[:count]
    tokens: list[int] = listed.ids[first].tolist()
    earlier = (tuple(tokens[:place]) for place in range(len(tokens)))
    return tokens, [_proposal(sampler, row, path, tokens) for tokens in earlier]


def _proposal(
    sampler: RememberingSampler, row: TargetRow, path: tuple[int, ...], earlier: tuple[int, ...]
) -> Proposal:
    """q of a sibling behind the `earlier` ones, remembered."""
    known = sampler.memory.siblings
    key = (id(row), sampler.answer, path), earlier
    if key not in known:
        left = sampler.distribution(row, path).listed()
        for token in earlier:
            left = left.without(token)
        known[key] = left.proposal()
    return known[key]
