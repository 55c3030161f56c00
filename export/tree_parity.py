"""Do the graphs for trees compute what those for chains do? Measured at every export.

A zero bias must change no bit on the CPU: chains ride along with trees. A tree must give each of
its paths what a chain of it gives. That is the same sum in another order, so equal only up to
rounding, and quantised activations turn a rounding into a step: there the mean is what is held to
a limit. A token that sees what it must not shifts it by more than half of the logits' spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.parity import Reference, failed
from export.runner import GraphRunner, RowStep

PARENTS = (-1, 0, 0, 1, 1, 2, 3, 3, 5, 8, 4, 10)
QUANTISED_MEAN = 0.1
"""Of the logits' spread; 0.006 to 0.02 were measured."""
_LEAST_PAST = 2


def check_trees(
    chains: Mapping[int, Path],
    trees: Mapping[int, Path],
    reference: Reference,
    *,
    device: str = "cpu",
    slack: float = 1.0,
    quantised: bool = False,
) -> dict[str, float]:
    """Compare the graphs for trees with those for chains, both by row count."""
    prompts = [ids for ids in reference.prompts if len(ids) > _LEAST_PAST]
    capacity = max(map(len, prompts)) + len(PARENTS)
    single = GraphRunner(chains[1], capacity=capacity, device=device)
    expected = [_as_chains(single, ids) for ids in prompts]
    zero, off = 0.0, [np.zeros(0, np.float32)]
    for rows, path in trees.items():
        tree = GraphRunner(path, capacity=capacity, device=device)
        chain = GraphRunner(chains[rows], capacity=capacity, device=device)
        turns = [row % len(prompts) for row in range(rows)]
        zero = max(zero, _zero_bias(tree, chain, [prompts[turn] for turn in turns]))
        found = _as_trees(tree, [prompts[turn] for turn in turns])
        off += [
            np.abs(one - expected[turn]).ravel() for one, turn in zip(found, turns, strict=True)
        ]
    spread = float(np.concatenate(reference.logits).std())
    differences = np.concatenate(off)
    figures = {
        "tree_zero_bias_max_abs": zero,
        "tree_max_abs": float(differences.max(initial=0.0)),
        "tree_mean_abs": float(differences.mean()),
    }
    within = (
        figures["tree_mean_abs"] <= QUANTISED_MEAN * spread
        if quantised
        else figures["tree_max_abs"] <= slack * reference.tolerance
    )
    if not within or not (zero == 0.0 or device != "cpu"):
        raise failed("a graph for trees differs from the graph for chains", figures)
    return figures


def _tree_tokens(ids: Sequence[int]) -> tuple[list[int], list[int]]:
    """A prefix of `ids` and a tree behind it: some of the later tokens, siblings different."""
    half = max(len(ids) // 2 // 2 * 2, _LEAST_PAST)
    known = sorted(set(ids))
    return list(ids[:half]), [known[7 * node % len(known)] for node in range(len(PARENTS))]


def _as_chains(runner: GraphRunner, ids: Sequence[int]) -> NDArray[Any]:
    """The logits of every node, each computed in the chain that leads to a leaf."""
    prefix, tokens = _tree_tokens(ids)
    runner.run([RowStep(prefix)])
    logits: list[NDArray[Any] | None] = [None] * len(PARENTS)
    for leaf in set(range(len(PARENTS))) - set(PARENTS):
        path = [leaf]
        while PARENTS[path[0]] >= 0:
            path.insert(0, PARENTS[path[0]])
        found = runner.run([RowStep([tokens[node] for node in path], len(prefix))])["logits"]
        for node, row in zip(path, found, strict=True):
            logits[node] = row
    return np.array(logits)


def _as_trees(runner: GraphRunner, prompts: Sequence[Sequence[int]]) -> list[NDArray[Any]]:
    """The logits of every node of every row's tree."""
    parts = [_tree_tokens(ids) for ids in prompts]
    runner.run([RowStep(prefix) for prefix, _ in parts])
    logits = runner.run([RowStep(tokens, len(prefix), PARENTS) for prefix, tokens in parts])
    return np.split(logits["logits"], len(prompts))


def _zero_bias(tree: GraphRunner, chain: GraphRunner, prompts: Sequence[Sequence[int]]) -> float:
    worst = 0.0
    parts = [_tree_tokens(ids) for ids in prompts]
    for steps in (
        [RowStep(prefix) for prefix, _ in parts],
        [RowStep(tokens, len(prefix)) for prefix, tokens in parts],
    ):
        one, other = tree.run(steps), chain.run(steps)
        for name in ("logits", "top_values", "logsumexp"):
            worst = max(worst, float(np.abs(one[name] - other[name]).max()))
    return worst
