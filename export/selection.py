"""From the logits of a draft step to its token, inside the graph.

The `LISTED` best tokens are looked at. A token is drawn as its restricted distribution says, by
the Gumbel noise that is fed; without noise it is the best one. The distribution is: logits times
the inverse temperature, the first `top_k` of them, of these the ones before which less than
`top_p` of the mass lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from export.replicas import Replicas

LISTED = 64
_EXCLUDED = np.float32(-1e30)


@dataclass(frozen=True, slots=True)
class Best:
    """Names of tensors [M, count]: the best tokens of M rows, best first.

    `values` are what they were ranked by, `places` indices into the draft vocabulary, `ids` the
    target's.
    """

    count: int
    values: str
    places: str
    ids: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Names of what is fed once per run: `noise` [steps, draft vocabulary] and three scalars."""

    noise: str
    inverse_temperature: str
    top_p: str
    top_k: str


def best(graph: Replicas, prefix: str, rows: str, count: int, vocabulary: str | None) -> Best:
    """`rows` [M, draft vocabulary]; `vocabulary`: the target's ids, None where they are equal."""
    values, places = f"{prefix}/values", f"{prefix}/places"
    size = graph.constant(f"selection/{count}", np.array([count], np.int64))
    graph.add_several("TopK", [rows, size], [values, places], axis=-1, largest=1, sorted=1)
    if vocabulary is None:
        return Best(count, values, places, places)
    return Best(count, values, places, graph.add("Gather", [vocabulary, places], f"{prefix}/ids"))


def log_shares(graph: Replicas, prefix: str, logits: str) -> str:
    return graph.add("LogSoftmax", [logits], f"{prefix}/log_shares", axis=-1)


def logsumexp(graph: Replicas, prefix: str, logits: str, found: Best) -> str:
    """Of `logits`, [M, 1]. ReduceLogSumExp takes eight times as long as a log-softmax."""
    shares = log_shares(graph, prefix, logits)
    first = graph.constant("selection/first", np.array([0], np.int64))
    largest = graph.add("Gather", [found.values, first], f"{prefix}/largest", axis=1)
    place = graph.add("Gather", [found.places, first], f"{prefix}/first_place", axis=1)
    share = graph.add("GatherElements", [shares, place], f"{prefix}/first_share", axis=1)
    return graph.add("Sub", [largest, share], f"{prefix}/logsumexp")


def weights(graph: Replicas, prefix: str, found: Best, sampling: Sampling) -> tuple[str, str]:
    """(scaled logits, weights), both [1, count]: a token's share up to a factor, 0 if excluded."""
    scaled = graph.add("Mul", [found.values, sampling.inverse_temperature], f"{prefix}/scaled")
    ranks = graph.constant("selection/ranks", np.arange(found.count)[None])
    excluded = graph.constant("selection/excluded", np.array(_EXCLUDED))
    first = graph.add("Less", [ranks, sampling.top_k], f"{prefix}/first")
    kept = graph.add("Where", [first, scaled, excluded], f"{prefix}/kept")
    share = graph.add("Softmax", [kept], f"{prefix}/share", axis=-1)
    axis = graph.constant("selection/axis", np.array(1, np.int64))
    before = graph.add("CumSum", [share, axis], f"{prefix}/before", exclusive=1)
    nucleus = graph.add("Less", [before, sampling.top_p], f"{prefix}/nucleus")
    none = graph.constant("selection/none", np.array(0, np.float32))
    return scaled, graph.add("Where", [nucleus, share, none], f"{prefix}/weights")


def draw(
    graph: Replicas, prefix: str, found: Best, sampling: Sampling, step: int
) -> tuple[str, str]:
    """(token, weights) of a step: the token's target id [1, 1] and what it was drawn from."""
    scaled, share = weights(graph, prefix, found, sampling)
    row = graph.constant(f"selection/step{step}", np.array(step, np.int64))
    own = graph.add("Gather", [sampling.noise, row], f"{prefix}/noise_row", axis=0)
    noise = graph.add("Gather", [own, found.places], f"{prefix}/noise", axis=0)
    none = graph.constant("selection/none", np.array(0, np.float32))
    excluded = graph.constant("selection/excluded", np.array(_EXCLUDED))
    possible = graph.add("Greater", [share, none], f"{prefix}/possible")
    noisy = graph.add("Add", [scaled, noise], f"{prefix}/noisy")
    score = graph.add("Where", [possible, noisy, excluded], f"{prefix}/score")
    place = graph.add("ArgMax", [score], f"{prefix}/place", axis=-1, keepdims=1)
    return graph.add("GatherElements", [found.ids, place], f"{prefix}/token", axis=1), share


def first_of(graph: Replicas, prefix: str, found: Best) -> str:
    """The best token's target id [1, 1]."""
    begin = graph.constant("selection/first", np.array([0], np.int64))
    return graph.add("Gather", [found.ids, begin], f"{prefix}/token", axis=1)
