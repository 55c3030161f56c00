"""Drafted trees against numpy: every node's logits computed alone, along its own path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from export.heads.step import StepGraph
from export.unroll_tree import unroll_tree
from tests.step_graphs import Runner, Sizes, head_step, lengths, model_step

SIZES = Sizes()
CONTEXT, PROMPT = [4, 120, 66, 290, 17], [250, 31, 77]
DEPTH, WIDTH = 4, 3
PAST = len(CONTEXT)


def features(count: int) -> NDArray[np.float32]:
    random = np.random.default_rng(3)
    return random.standard_normal((count, SIZES.features)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Level:
    ids: NDArray[np.int64]
    scores: NDArray[np.float64]
    chosen: NDArray[np.int64]


class ByPath:
    """Log-probabilities of what follows a path, its tokens run one by one behind the context."""

    def __init__(self, step: StepGraph, width: int) -> None:
        self.step, self.width = step, width
        self.runner = Runner(step.model)
        self.states = None
        if step.entry is not None:
            given = features(len(CONTEXT) + len(PROMPT))
            self.states = Runner(step.entry).run({"features": given})["states"]

    def follow(self, path: tuple[int, ...]) -> NDArray[np.float64]:
        ids, past = [*CONTEXT, *PROMPT], 0
        states = self.states
        for token in (None, *path):
            if token is not None:
                ids = [token]
            feeds = {
                "input_ids": np.array([ids]),
                "logits_index": np.array([len(ids) - 1]),
                **lengths("", past, len(ids)),
            }
            if states is not None:
                feeds["states"] = states
            found = self.runner.run(feeds)
            past += len(ids)
            states = None if states is None else found["next_states"][-1:]
        logits = found["logits"][0].astype(np.float64)
        return logits - np.log(np.exp(logits).sum())

    def levels(self, depth: int) -> list[Level]:
        nodes: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        levels = []
        for _ in range(depth):
            ids, scores = [], []
            for path, score in nodes:
                row = self.follow(path)
                best = np.argsort(-row, kind="stable")[: self.width]
                ids.append(best if self.step.ids is None else self.step.ids[best])
                scores.append(row[best] + score)
            flat = np.array(scores).ravel()
            chosen = np.argsort(-flat, kind="stable")[: self.width]
            levels.append(Level(np.array(ids), np.array(scores), chosen))
            nodes = [
                ((*nodes[place // self.width][0], int(np.array(ids).ravel()[place])), flat[place])
                for place in chosen
            ]
        return levels


def tree_feeds(step: StepGraph, depth: int, width: int) -> dict[str, NDArray[Any]]:
    context = PAST + len(PROMPT)
    feeds: dict[str, NDArray[Any]] = {
        "input_ids": np.array([PROMPT]),
        "context": np.array([context]),
        **lengths("0", PAST, len(PROMPT)),
    }
    if step.entry is not None:
        feeds["features"] = features(context)[PAST:]
    for level in range(1, depth):
        feeds |= lengths(str(level), context + (level - 1) * width, width)
        feeds[f"position_ids.{level}"] = np.full((1, width), context + level - 1)
    return feeds


def drafted(step: StepGraph, depth: int, width: int) -> dict[str, NDArray[Any]]:
    """Behind a context that the step graph itself left in the buffers."""
    runner = Runner(unroll_tree(step, depth, width))
    before = Runner(step.model)
    feeds = {
        "input_ids": np.array([CONTEXT]),
        "logits_index": np.array([0]),
        **lengths("", 0, PAST),
    }
    if step.entry is not None:
        feeds["states"] = Runner(step.entry).run({"features": features(8)[:PAST]})["states"]
    before.run(feeds)
    runner.copy_buffers(before)
    return runner.run(tree_feeds(step, depth, width))


@pytest.mark.parametrize("kind", ["head", "layers", "model"])
def test_candidates_and_scores_are_those_of_every_path_alone(kind: str) -> None:
    step = {
        "head": lambda: head_step(SIZES),
        "layers": lambda: head_step(Sizes(layers=2)),
        "model": model_step,
    }[kind]()
    found = drafted(step, DEPTH, WIDTH)
    expected = ByPath(step, WIDTH).levels(DEPTH)
    for depth, level in enumerate(expected):
        assert np.array_equal(found[f"ids.{depth}"], level.ids), depth
        assert np.allclose(found[f"scores.{depth}"], level.scores, atol=2e-4), depth
        assert np.array_equal(found[f"chosen.{depth}"], level.chosen), depth
    parents = [set((level.chosen // WIDTH).tolist()) for level in expected[1:]]
    assert any(len(rows) > 1 for rows in parents), "only one node ever had children"
    assert any(rows != {0} and len(rows) < WIDTH for rows in parents), "every node always had one"


def test_a_tree_of_one_node_a_level_is_a_chain() -> None:
    step = head_step(SIZES)
    found = drafted(step, 3, 1)
    path: tuple[int, ...] = ()
    single = ByPath(step, 1)
    for depth in range(3):
        row = single.follow(path)
        assert step.ids is not None
        path = (*path, int(step.ids[row.argmax()]))
        assert found[f"ids.{depth}"].tolist() == [[path[-1]]]


def test_a_tree_of_one_level_needs_no_second_run() -> None:
    step = head_step(SIZES)
    found = drafted(step, 1, 8)
    (level,) = ByPath(step, 8).levels(1)
    assert np.array_equal(found["ids.0"], level.ids)
    assert found["chosen.0"].tolist() == list(range(8))


def test_the_likeliest_candidates_bring_their_parents() -> None:
    """What the host relies on when it picks the best candidates of all levels."""
    found = drafted(head_step(SIZES), DEPTH, WIDTH)
    for depth in range(1, DEPTH):
        parents = found[f"scores.{depth - 1}"].ravel()[found[f"chosen.{depth - 1}"]]
        assert (found[f"scores.{depth}"] < parents[:, None]).all()
