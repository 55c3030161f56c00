"""A drafted tree in one graph: `width` nodes a level, chosen by cumulative probability.

As in EAGLE-2 (arXiv 2406.16858): the nodes of a level each propose their `width` best tokens, and
of these candidates the `width` likeliest, by the product of probabilities along their path, become
the next level's nodes. Nodes of a level run side by side; each sees the context and its ancestors.

Inputs: `input_ids` [1, N]; `features` [N, F] (not for draft models); `context` [1] int64, the
entries before the tree, the N included; for each level d, `position_ids.{d}` ([1, N] for the first,
[1, W] behind it), `seqlens_k.{d}` [1] and `total_length.{d}` [], where level d > 0 adds W entries
behind those of the level before; `past.*`.

Outputs per level d: `ids.{d}` [n_d, W], the candidates' target ids, `scores.{d}` [n_d, W], the log
of their probability given the context, `chosen.{d}` [W], the flat indices of the candidates that
become nodes, likeliest first. n_0 is 1, n_d is W: row i of level d continues `chosen.{d-1}[i]`. As
a chain's graph, outputs `present.{layer}.0.{part}` and `present.{layer}.0.{part}.{d}` (d before the
last level), to be bound to the buffers of `past.{layer}.0.{part}`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto

from export.heads.step import StepGraph
from export.last_row import LAST, only_last
from export.replicas import Replicas, buffer, element_type
from export.selection import best, log_shares
from export.unroll import draft_vocabulary, enter, vocabulary_size
from models.trees import HIDDEN

_INT64, _INT32, _FLOAT = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT
_BIAS, _BIAS_INPUT = "attention_bias.0", 10


def unroll_tree(step: StepGraph, depth: int, width: int) -> onnx.ModelProto:
    """The graph for a tree of `depth` levels. Not for heads with several modules."""
    assert not step.later, "a head with several modules drafts no trees"
    assert width <= vocabulary_size(step), "more nodes than tokens to propose"
    graph = Replicas()
    vocabulary = draft_vocabulary(graph, step)
    tree = _Tree(graph, step.model, _with_bias(step.model), width, depth, vocabulary)
    states = enter(graph, step)
    graph.input("input_ids", _INT64, [1, "tokens"])
    graph.input("context", _INT64, [1])
    for level in range(depth):
        graph.input(f"position_ids.{level}", _INT64, [1, width if level else "tokens"])
        graph.input(f"seqlens_k.{level}", _INT32, [1])
        graph.input(f"total_length.{level}", _INT32, [])
    nodes = tree.first(states)
    for level in range(1, depth):
        nodes = tree.level(level, nodes)
    return graph.build(f"draft.tree.d{depth}", step.model)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Names of tensors: the nodes that the next level runs, W of them.

    `ids` [1, W]; `states` [W, hidden], None for draft models; `scores` [W, 1]; `hidden` [W, d * W]
    says what of the d levels so far, its own included, a node must not see.
    """

    ids: str
    states: str | None
    scores: str
    hidden: str


@dataclass(frozen=True, slots=True)
class _Tree:
    graph: Replicas
    model: onnx.ModelProto
    biased: onnx.ModelProto
    width: int
    depth: int
    vocabulary: str | None

    def first(self, states: str | None) -> _Nodes:
        """Level 0: the step behind the context; its best tokens are all nodes."""
        graph, width, prefix = self.graph, self.width, "level0"
        feeds = {"input_ids": "input_ids", **self._lengths(0)}
        if states is not None:
            feeds["states"] = states
        feeds["logits_index"] = graph.constant(LAST, np.array([-1], np.int64))
        found = graph.copy(only_last(self.model), prefix, feeds, self._buffers(0, feeds))
        self._candidates(0, found["logits"], None)
        chosen = graph.constant("tree/all", np.arange(width))
        graph.add("Identity", [chosen], "chosen.0")
        graph.output("chosen.0", _INT64, [width])
        column = graph.constant("tree/column", np.array([-1, 1], np.int64))
        following = found.get("next_states")
        if following is not None:
            rows = graph.constant("tree/last_rows", np.full(width, -1, np.int64))
            following = graph.add("Gather", [following, rows], f"{prefix}/states", axis=0)
        return _Nodes(
            ids="ids.0",
            states=following,
            scores=graph.add("Reshape", ["scores.0", column], f"{prefix}/node_scores"),
            hidden=self._siblings(),
        )

    def level(self, level: int, nodes: _Nodes) -> _Nodes:
        """Run the nodes, rank what they propose."""
        graph, width, prefix = self.graph, self.width, f"level{level}"
        feeds = {"input_ids": nodes.ids, _BIAS: self._bias(level, nodes), **self._lengths(level)}
        if nodes.states is not None:
            feeds["states"] = nodes.states
        feeds["logits_index"] = graph.constant("tree/all", np.arange(width))
        found = graph.copy(self.biased, prefix, feeds, self._buffers(level, feeds))
        self._candidates(level, found["logits"], nodes.scores)
        return self._choose(level, nodes, found.get("next_states"))

    def _candidates(self, level: int, logits: str, scores: str | None) -> None:
        """Outputs `ids` and `scores` of the level; `scores` [n, 1] are those of its nodes."""
        graph, width, prefix = self.graph, self.width, f"level{level}"
        shares = log_shares(graph, prefix, logits)
        found = best(graph, prefix, shares, width, self.vocabulary)
        rows = width if level else 1
        graph.add("Identity", [found.ids], f"ids.{level}")
        graph.output(f"ids.{level}", _INT64, [rows, width])
        name = f"scores.{level}"
        if scores is None:
            graph.add("Identity", [found.values], name)
        else:
            graph.add("Add", [found.values, scores], name)
        graph.output(name, _FLOAT, [rows, width])

    def _choose(self, level: int, nodes: _Nodes, states: str | None) -> _Nodes:
        graph, width, prefix = self.graph, self.width, f"level{level}"
        flat = graph.constant("tree/flat", np.array([-1], np.int64))
        count = graph.constant("tree/width", np.array([width], np.int64))
        row = graph.constant("tree/row", np.array([1, -1], np.int64))
        column = graph.constant("tree/column", np.array([-1, 1], np.int64))
        chosen, best_scores = f"chosen.{level}", f"{prefix}/best_scores"
        scores = graph.add("Reshape", [f"scores.{level}", flat], f"{prefix}/flat_scores")
        ids = graph.add("Reshape", [f"ids.{level}", flat], f"{prefix}/flat_ids")
        graph.add_several("TopK", [scores, count], [best_scores, chosen], axis=0)
        graph.output(chosen, _INT64, [width])
        size = graph.constant("tree/row_size", np.array(width, np.int64))
        parents = graph.add("Div", [chosen, size], f"{prefix}/parents")
        own = graph.add("Gather", [ids, chosen], f"{prefix}/node_ids_flat", axis=0)
        seen = graph.add("Gather", [nodes.hidden, parents], f"{prefix}/hidden_before", axis=0)
        siblings = self._siblings()
        return _Nodes(
            ids=graph.add("Reshape", [own, row], f"{prefix}/node_ids"),
            states=states and graph.add("Gather", [states, parents], f"{prefix}/states", axis=0),
            scores=graph.add("Reshape", [best_scores, column], f"{prefix}/node_scores"),
            hidden=graph.add("Concat", [seen, siblings], f"{prefix}/hidden", axis=1),
        )

    def _lengths(self, level: int) -> dict[str, str]:
        return {
            "position_ids": f"position_ids.{level}",
            "seqlens_k.0": f"seqlens_k.{level}",
            "total_length.0": f"total_length.{level}",
        }

    def _buffers(self, level: int, feeds: dict[str, str]) -> dict[str, str]:
        """Feed the K/V; returns what this level's are called."""
        results = {}
        for value in self.model.graph.input:
            if not value.name.startswith("past."):
                continue
            output = value.name.replace("past.", "present.", 1)
            if level == 0:
                self.graph.inputs.append(value)
            feeds[value.name] = f"{output}.{level - 1}" if level else value.name
            results[output] = output if level == self.depth - 1 else f"{output}.{level}"
            kind, shape = buffer(value)
            self.graph.output(results[output], kind, shape)
        return results

    def _siblings(self) -> str:
        """[W, W]: 0 for a node itself, a large negative number for the others of its level."""
        half = self._kv_type() == TensorProto.FLOAT16
        kind, hidden = (np.float16, HIDDEN["fp16"]) if half else (np.float32, HIDDEN["fp32"])
        own = np.where(np.eye(self.width, dtype=np.bool_), 0, hidden).astype(kind)
        return self.graph.constant("tree/siblings", own)

    def _bias(self, level: int, nodes: _Nodes) -> str:
        """[1, 1, W, context + level * W]: zeros, then what the nodes must not see."""
        graph, prefix = self.graph, f"level{level}"
        if level == 1:
            rows = graph.constant("tree/bias_rows", np.array([1, 1, self.width], np.int64))
            shape = graph.add("Concat", [rows, "context"], "tree/context_shape", axis=0)
            half = self._kv_type() == TensorProto.FLOAT16
            zero = graph.constant("tree/zero", np.zeros(1, np.float16 if half else np.float32))
            graph.add("Expand", [zero, shape], "tree/context_bias")
        axes = graph.constant("tree/axes", np.array([0, 1], np.int64))
        own = graph.add("Unsqueeze", [nodes.hidden, axes], f"{prefix}/own_bias")
        return graph.add("Concat", ["tree/context_bias", own], f"{prefix}/bias", axis=3)

    def _kv_type(self) -> int:
        inputs = self.model.graph.input
        return element_type(inputs, next(v.name for v in inputs if v.name.startswith("past.")))


def _with_bias(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every attention node reads `attention_bias.0`."""
    biased = onnx.ModelProto()
    biased.CopyFrom(model)
    for node in biased.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.input.extend([""] * (_BIAS_INPUT - len(node.input)))
            node.input.append(_BIAS)
    return biased
