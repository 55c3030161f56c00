"""Medusa: which feature the heads read, which places they answer for, chains and trees."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from models.drafters.drawing import Drawing
from models.drafters.learned import LearnedModels
from models.drafters.medusa import MedusaDrafter
from models.package import Package
from models.slots import Slot
from models.target import Target
from tests.drafters_support import (
    CPU,
    HEADS,
    Conversation,
    load,
    make_sampler,
    medusa_weights,
)
from tests.engine_support import make_prompt

PROMPT = make_prompt(30)


@pytest.fixture(scope="module")
def target(drafting: Package) -> Target:
    return Target(drafting, CPU)


@pytest.fixture(scope="module")
def models(drafting: Package) -> LearnedModels:
    return load(drafting, "medusa")


@pytest.fixture
def talk(target: Target) -> Conversation:
    return Conversation(target, target.make_slots(1, 200)[0], PROMPT)


def probabilities(slot: Slot) -> NDArray[np.float64]:
    """[heads, vocabulary]: of the last token in the slot."""
    feature = slot.features["hidden"].numpy()[slot.length - 1]
    logits = (feature @ medusa_weights()).reshape(HEADS, -1).astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return shares


def test_a_chain_is_each_heads_likeliest_token(models: LearnedModels, talk: Conversation) -> None:
    """The heads read what the target's own answer, the last committed token, was made of: the
    first head's token is the one behind it."""
    drafter = talk.begin(models.drafter("medusa", talk.slot, None, shared=False))
    for _ in range(3):
        draft = drafter.propose(8)
        wanted = probabilities(talk.slot).argmax(axis=1).tolist()
        assert list(draft.tokens) == wanted
        assert (draft.parents, draft.proposals, draft.source) == (None, None, "medusa")
        assert drafter.propose(2).tokens == tuple(wanted[:2])
        talk.round(drafter, draft)


def test_drawn_tokens_are_drawn_from_q(models: LearnedModels, talk: Conversation) -> None:
    shares = probabilities(talk.slot)
    for shared in (True, False):
        sampler = make_sampler(1.0, seed=3, top_k=20)
        drafter = talk.begin(models.drafter("medusa", talk.slot, sampler, shared=shared))
        draft = drafter.propose(3)
        assert draft.proposals is not None
        drawing = Drawing(sampler.sampling, 3, shared=shared, listed=64)
        for place, (token, q) in enumerate(zip(draft.tokens, draft.proposals, strict=True)):
            likely = np.argsort(-shares[place])[:20]
            assert sorted(q.ids.tolist()) == sorted(likely.tolist())
            wanted = shares[place][q.ids] / shares[place][likely].sum()
            assert np.allclose(q.probabilities, wanted, atol=1e-5)
            assert token == drawing.draw(len(talk.tokens) + place, q)


def test_drafts_are_distributed_as_q(models: LearnedModels, talk: Conversation) -> None:
    counts: Counter[int] = Counter()
    for seed in range(2000):
        sampler = make_sampler(1.0, seed=seed, top_k=6)
        drafter = talk.begin(models.drafter("medusa", talk.slot, sampler, shared=False))
        draft = drafter.propose(2)
        counts[draft.tokens[1]] += 1
    assert draft.proposals is not None
    q = draft.proposals[1]
    found = np.array([counts[token] for token in q.ids.tolist()])
    assert found.sum() == 2000
    # 5 degrees of freedom: 20.5 is exceeded once in a thousand.
    wanted = 2000 * q.probabilities
    assert ((found - wanted) ** 2 / wanted).sum() < 20.5


@pytest.mark.parametrize("branches", [2, 4])
def test_a_tree_is_of_the_likeliest_paths(
    branches: int, models: LearnedModels, talk: Conversation
) -> None:
    drafter = models.drafter("medusa", talk.slot, make_sampler(), shared=True, branches=branches)
    assert isinstance(drafter, MedusaDrafter)
    talk.begin(drafter)
    draft = drafter.propose(10)
    shares = probabilities(talk.slot)
    assert draft.parents is not None
    assert draft.proposals is None
    assert len(draft.tokens) == 10
    survival: list[float] = []
    depth: list[int] = []
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
        above = survival[parent] if parent >= 0 else 1.0
        survival.append(above * float(shares[depth[-1]][token]))
    every = sorted(
        (
            math.prod(ranks)
            for length in range(1, HEADS + 1)
            for ranks in _products([-np.sort(-row)[:branches] for row in shares[:length]])
        ),
        reverse=True,
    )
    assert np.allclose(sorted(survival, reverse=True), every[:10], rtol=1e-3)
    for parent in range(-1, 10):
        siblings = [index for index in range(10) if draft.parents[index] == parent]
        assert len(siblings) <= branches
        assert [survival[index] for index in siblings] == sorted(
            (survival[index] for index in siblings), reverse=True
        )
        assert draft.confidence is not None
        assert sum(draft.confidence[index] for index in siblings) <= 1 + 1e-9


def _products(rows: list[NDArray[np.float64]]) -> list[tuple[float, ...]]:
    found: list[tuple[float, ...]] = [()]
    for row in rows:
        found = [(*before, float(value)) for before in found for value in row]
    return found
