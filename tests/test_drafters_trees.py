"""Trees of likeliest paths: which candidates are taken, and what becomes of them as a draft."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from export.unroll_tree import unroll_tree
from models.draft import Draft
from models.drafters.calibration import Curve
from models.drafters.judged import JudgedTree, Node, TreeCurves
from models.drafters.learned import LearnedModels
from models.drafters.recurrent import RecurrentTreeDrafter
from models.drafters.trees import GraphCandidates, Heads, grow
from models.package import Package
from models.slots import Slot
from models.target import Target
from tests.drafters_support import (
    CPU,
    DEPTH,
    MODEL_SIZES,
    WIDTH,
    Conversation,
    head,
    load,
    make_sampler,
)
from tests.engine_support import make_prompt
from tests.step_graphs import Runner, lengths, model_step

PROMPT = make_prompt(30)
AHEAD = {"eagle3": 1, "draft-model": 0}


@dataclass(frozen=True)
class Candidates:
    """What a tree graph gives, as `best_candidates` reads it."""

    depth: int
    width: int
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    chosen: NDArray[np.int64]


class Believing(Curve):
    """What a drafter says is what is accepted."""

    def estimate(self, probability: float, depth: int = 0) -> float:
        return probability


BELIEVING = TreeCurves(Believing(), Believing())


def random_candidates(depth: int, width: int, seed: int) -> Candidates:
    """Ranked as the graph ranks."""
    random = np.random.default_rng(seed)
    ids, scores, chosen = [], [], []
    above = np.zeros(1)
    for level in range(depth):
        rows = width if level else 1
        logits = random.standard_normal((rows, 20)) * 2
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        best = np.argsort(-logits, axis=1)[:, :width]
        own = np.take_along_axis(logits, best, 1) + above[:, None]
        ids.append(best.ravel())
        scores.append(own.ravel().astype(np.float32))
        chosen.append(np.argsort(-own.ravel(), kind="stable")[:width])
        above = own.ravel()[chosen[-1]]
    flat = np.concatenate(ids), np.concatenate(scores), np.stack(chosen)
    return Candidates(depth, width, *flat)


def paths(nodes: list[Node]) -> dict[tuple[int, ...], float]:
    """The probability of every path from the root."""
    found: dict[tuple[int, ...], float] = {}

    def walk(siblings: list[Node], path: tuple[int, ...], survival: float) -> None:
        assert len({node.token for node in siblings}) == len(siblings)
        for node in siblings:
            found[*path, node.token] = survival * node.probability
            walk(node.children, (*path, node.token), survival * node.probability)

    walk(nodes, (), 1.0)
    return found


def all_paths(candidates: Candidates) -> dict[tuple[int, ...], float]:
    width, known = candidates.width, dict[int, tuple[int, ...]]()
    found: dict[tuple[int, ...], float] = {}
    starts = [0, *(width + level * width**2 for level in range(candidates.depth))]
    for level in range(candidates.depth):
        for candidate in range(starts[level], starts[level + 1]):
            path: tuple[int, ...] = ()
            if level:
                row = (candidate - starts[level]) // width
                path = known[starts[level - 1] + int(candidates.chosen[level - 1][row])]
            known[candidate] = (*path, int(candidates.ids[candidate]))
            found[known[candidate]] = math.exp(float(candidates.scores[candidate]))
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("budget", [1, 3, 8, 16, 500])
def test_the_likeliest_paths_are_taken(seed: int, budget: int) -> None:
    candidates: Any = random_candidates(4, 5, seed)
    everything = all_paths(candidates)
    taken = paths(grow(GraphCandidates(candidates).below, budget, 5, BELIEVING))
    assert len(taken) == min(budget, len(everything))
    for path, survival in taken.items():
        assert math.isclose(survival, everything[path], rel_tol=1e-4)
        assert path[:-1] in taken or len(path) == 1
    least = min(taken.values())
    left = [survival for path, survival in everything.items() if path not in taken]
    assert all(survival <= least * (1 + 1e-4) for survival in left)


@pytest.mark.parametrize("branches", [1, 2, 3])
def test_no_token_has_more_branches_than_asked_for(branches: int) -> None:
    candidates: Any = random_candidates(4, 5, seed=1)
    taken = paths(grow(GraphCandidates(candidates).below, 12, branches, BELIEVING))
    assert len(taken) == (4 if branches == 1 else 12)
    for path in ((), *taken):
        children = [other for other in taken if other[:-1] == path]
        assert len(children) <= branches
        # The likeliest ones of those there are.
        ranked = [other for other in all_paths(candidates) if other[:-1] == path]
        assert (
            children == sorted(ranked, key=all_paths(candidates).__getitem__)[::-1][: len(children)]
        )


def test_what_is_next_to_impossible_is_not_proposed() -> None:
    candidates: Any = random_candidates(2, 3, seed=0)
    candidates.scores[2:] -= 60
    assert len(paths(grow(GraphCandidates(candidates).below, 10, 3, BELIEVING))) == 2


@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 4, 9, 100])
def test_products_of_independent_places_are_taken_best_first(budget: int, branches: int) -> None:
    random = np.random.default_rng(2)
    ids = random.permuted(np.tile(np.arange(50), (3, 1)), axis=1)[:, :4].tolist()
    shares = -np.sort(-random.dirichlet([0.5] * 6, 3), axis=1)[:, :4]
    everything = {
        tuple(ids[place][rank] for place, rank in enumerate(ranks)): math.prod(
            shares[place][rank] for place, rank in enumerate(ranks)
        )
        for depth in (1, 2, 3)
        for ranks in itertools.product(range(branches), repeat=depth)
    }
    heads = Heads(np.array(ids), shares.astype(np.float32))
    taken = paths(grow(heads.below, budget, branches, BELIEVING))
    wanted = sorted(everything.values(), reverse=True)[:budget]
    assert np.allclose(sorted(taken.values(), reverse=True), wanted)
    assert all(math.isclose(everything[path], value, rel_tol=1e-5) for path, value in taken.items())


@pytest.fixture(scope="module")
def target(drafting: Package) -> Target:
    return Target(drafting, CPU)


@pytest.fixture(scope="module")
def models(drafting: Package) -> LearnedModels:
    return load(drafting)


@pytest.fixture
def slot(target: Target) -> Slot:
    return target.make_slots(1, 200)[0]


def expected(
    kind: str, tokens: list[int], slot: Slot, budget: int, curves: TreeCurves
) -> dict[tuple[int, ...], float]:
    """The tree of a graph that is given all entries at once."""
    step = head() if kind == "eagle3" else model_step(MODEL_SIZES)
    runner = Runner(unroll_tree(step, DEPTH, WIDTH), capacity=200)
    end = len(tokens) - AHEAD[kind]
    feeds = {"input_ids": np.array([tokens[AHEAD[kind] :]]), "context": np.array([end])}
    if kind == "eagle3":
        feeds["features"] = slot.features["taps"].numpy()[:end]
    feeds |= lengths("0", 0, end)
    for level in range(1, DEPTH):
        feeds |= lengths(str(level), end + (level - 1) * WIDTH, WIDTH)
        feeds[f"position_ids.{level}"] = np.full((1, WIDTH), end - 1 + level)
    found = runner.run(feeds)
    flat = {
        name: np.concatenate([found[f"{name}.{level}"].ravel() for level in range(DEPTH)])
        for name in ("ids", "scores")
    }
    chosen = np.stack([found[f"chosen.{level}"] for level in range(DEPTH)])
    candidates: Any = Candidates(DEPTH, WIDTH, flat["ids"], flat["scores"], chosen)
    return paths(grow(GraphCandidates(candidates).below, budget, WIDTH, curves))


def path_of(draft: Draft, index: int) -> tuple[int, ...]:
    assert draft.parents is not None
    path: list[int] = []
    while index >= 0:
        path.append(draft.tokens[index])
        index = draft.parents[index]
    return tuple(reversed(path))


@pytest.mark.parametrize("kind", ["eagle3", "draft-model"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_every_round_drafts_the_tree_of_all_tokens(
    kind: str, temperature: float, models: LearnedModels, target: Target, slot: Slot
) -> None:
    """A request that samples gets likeliest tokens too, with a one-hot q, judged apart."""
    talk = Conversation(target, slot, PROMPT)
    drafter = models.drafter(kind, slot, make_sampler(temperature), shared=True, branches=WIDTH)
    assert isinstance(drafter, RecurrentTreeDrafter)
    talk.begin(drafter)
    known = models._models[kind].calibration
    curves = TreeCurves(known.greedy, known.greedy_sibling)
    if temperature:
        curves = TreeCurves(known.likeliest, known.likeliest_sibling)
    for accepted in (0, 2, 1):
        draft = drafter.propose(9)
        wanted = expected(kind, talk.tokens, slot, 9, curves)
        assert isinstance(drafter._judged, JudgedTree)
        found = paths(drafter._judged.roots)
        assert found.keys() == wanted.keys()
        assert all(math.isclose(found[path], wanted[path], rel_tol=1e-3) for path in wanted)
        assert draft.parents is not None
        assert draft.proposals is None
        assert draft.source == kind
        assert {path_of(draft, index) for index in range(9)} == wanted.keys()
        first = next(path for path in wanted if len(path) == 2)
        talk.say(drafter, (*first[:accepted], 5))


def test_a_tree_is_of_what_was_right_not_of_what_was_likely() -> None:
    """Where first tokens are nearly always right and others never, a tree is a chain."""
    candidates: Any = random_candidates(4, 4, seed=3)
    assert max(len(path) for path in paths(grow_all(candidates, BELIEVING))) < 4
    first, other = Curve(), Curve()
    for _ in range(500):
        for share in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
            first.observe(share, 0, True)
            other.observe(share, 0, False)
    chain = paths(grow_all(candidates, TreeCurves(first, other)))
    assert sorted(len(path) for path in chain) == [1, 2, 3, 4]


def grow_all(candidates: Any, curves: TreeCurves) -> list[Node]:
    return grow(GraphCandidates(candidates).below, 4, 4, curves)


def test_a_tree_of_a_small_budget_runs_a_shallow_graph(
    models: LearnedModels, target: Target, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Conversation(target, slot, PROMPT)
    drafter = talk.begin(models.drafter("eagle3", slot, None, shared=False, branches=2))
    depths: list[int] = []
    graphs = models._models["eagle3"].graphs
    real = graphs.tree

    def tree(slot: Slot, buffers: Any, depth: int) -> Any:
        depths.append(depth)
        return real(slot, buffers, depth)

    monkeypatch.setattr(graphs, "tree", tree)
    assert [len(drafter.propose(budget).tokens) for budget in (1, 2, 9)] == [1, 2, 9]
    assert depths == [1, DEPTH, DEPTH]


def test_one_branch_is_a_chain(models: LearnedModels, target: Target, slot: Slot) -> None:
    talk = Conversation(target, slot, PROMPT)
    drafter = talk.begin(models.drafter("eagle3", slot, None, shared=False, branches=1))
    assert not isinstance(drafter, RecurrentTreeDrafter)
    assert drafter.propose(4).parents is None
    without = models.drafter("mtp", slot, None, shared=False, branches=4)
    assert not isinstance(without, RecurrentTreeDrafter)
    assert [models.drafts_trees(kind) for kind in models.kinds] == [
        True,
        True,
        False,
        False,
        True,
    ]
