"""What a drafter thinks of its draft, and what it learns from the target's answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from models.drafters.calibration import Curve
from models.drafters.judged import JudgedChain, JudgedTree, Node, TreeCurves


class Recorder(Curve):
    """Believes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int, bool]] = []

    def estimate(self, probability: float, depth: int = 0) -> float:
        return probability

    def observe(self, probability: float, depth: int, accepted: bool) -> None:
        self.seen.append((probability, depth, accepted))


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ((1, 2, 3, 9), [(0.9, 0, True), (0.8, 1, True), (0.7, 2, True)]),
        ((1, 5), [(0.9, 0, True), (0.8, 1, False)]),
        ((5,), [(0.9, 0, False)]),
        ((1, 2), [(0.9, 0, True), (0.8, 1, True)]),
    ],
)
def test_a_chain_is_compared_as_far_as_the_target_spoke(
    said: Sequence[int], seen: list[tuple[float, int, bool]]
) -> None:
    curve = Recorder()
    JudgedChain((1, 2, 3), (0.9, 0.8, 0.7), curve).learn(said)
    assert curve.seen == seen


def test_where_acceptance_is_drawn_only_the_first_token_teaches() -> None:
    """A later one may have been cut, and then the target's token says nothing about acceptance."""
    curve = Recorder()
    JudgedChain((1, 2, 3), (0.9, 0.8, 0.7), curve, certain=False).learn((1, 7))
    assert curve.seen == [(0.9, 0, True)]


def tree() -> list[Node]:
    """1 (2 (3), 4), 5 (6)."""
    inner = [Node(2, 0, 0.5, 0.55, [Node(3, 0, 0.9, 0.95)]), Node(4, 2, 0.4, 0.45)]
    return [Node(1, 0, 0.6, 0.65, inner), Node(5, 1, 0.3, 0.35, [Node(6, 0, 0.8, 0.85)])]


def curves(*, certain: bool = True) -> tuple[TreeCurves, Recorder, Recorder]:
    first, other = Recorder(), Recorder()
    return TreeCurves(first, other, certain=certain), first, other


def test_a_tree_is_laid_out_with_its_first_path_together() -> None:
    draft = JudgedTree(tree(), curves()[0]).draft("eagle3")
    assert draft.tokens == (1, 2, 3, 4, 5, 6)
    assert draft.parents == (-1, 0, 1, 0, -1, 4)
    assert draft.confidence == (0.65, 0.55, 0.95, 0.45, 0.35, 0.85)
    assert (draft.source, draft.proposals) == ("eagle3", None)


def test_a_tree_without_a_fork_is_a_chain() -> None:
    path = [Node(1, 0, 0.6, 0.6, [Node(2, 1, 0.5, 0.5, [Node(3, 0, 0.9, 0.9)])])]
    draft = JudgedTree(path, curves()[0]).draft("eagle3")
    assert (draft.tokens, draft.parents) == ((1, 2, 3), None)
    assert JudgedTree([], curves()[0]).draft("eagle3").tokens == ()


def test_siblings_are_never_surer_than_certain() -> None:
    nodes = curves()[0].judge((1, 2, 3), (0.7, 0.6, 0.5), depth=0)
    assert [node.confidence for node in nodes] == pytest.approx([0.7, 0.3, 0.0])
    assert [(node.token, node.rank) for node in nodes] == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize(
    ("said", "first", "other"),
    [
        (
            (1, 4, 8),
            [(0.6, 0, True), (0.5, 1, False)],
            [(0.4, 1, True)],
        ),
        ((5, 6), [(0.6, 0, False), (0.8, 1, True)], [(0.3, 0, True)]),
        ((9,), [(0.6, 0, False)], [(0.3, 0, False)]),
        ((1, 2, 3, 7), [(0.6, 0, True), (0.5, 1, True), (0.9, 2, True)], []),
    ],
)
def test_a_tree_is_compared_along_the_targets_own_path(
    said: Sequence[int],
    first: list[tuple[float, int, bool]],
    other: list[tuple[float, int, bool]],
) -> None:
    judges, likeliest, others = curves()
    JudgedTree(tree(), judges).learn(said)
    assert (likeliest.seen, others.seen) == (first, other)


def test_where_acceptance_is_drawn_a_trees_first_level_teaches() -> None:
    judges, likeliest, others = curves(certain=False)
    JudgedTree(tree(), judges).learn((1, 4))
    assert (likeliest.seen, others.seen) == ([(0.6, 0, True)], [])
