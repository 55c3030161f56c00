"""K draft steps of a head or a draft model in one graph: a round costs one run.

Every step's K/V goes into the same buffers: bind each `past.{layer}.0.{part}` and all outputs
`present.{layer}.0.{part}` and `present.{layer}.0.{part}.{k}` (of the steps k before the last that
writes the layer) to one OrtValue. Nothing is copied then.

Inputs: `input_ids` [1, N]; `features` [N, F] (not for draft models); for each step k, whether it
is read or not, `position_ids.{k}` ([1, N] for the first, [1, 1] behind it), `seqlens_k.{k}` [1]
and `total_length.{k}` []; `noise` [K, draft vocabulary] (Gumbel; zeros: the best token),
`inverse_temperature` [1], `top_p` [1], `top_k` [1]; `past.*`.

Outputs: `draft_ids` [K]; per step `top_values` [K, T] (raw logits, falling), `top_ids` [K, T],
`weights` [K, T] (what the token was drawn from, up to a factor; 0 for what top-k and top-p
exclude) and `logsumexp` [K] (of all raw logits); `present.*`. All ids are the target's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto

from export.graph import attribute
from export.heads.step import StepGraph
from export.last_row import LAST, only_last
from export.replicas import Replicas, buffer, dims, distinct, element_type
from export.selection import LISTED, Best, Sampling, best, draw, first_of, logsumexp

VOCABULARY = "draft_vocabulary"
_INT64, _INT32, _FLOAT = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT


def unroll(step: StepGraph, steps: int) -> onnx.ModelProto:
    """The graph for a draft of `steps` tokens.

    A head with several modules runs all of them, however short the draft: each must see every
    token.
    """
    graph = Replicas()
    modules = distinct([step.model, *step.later])
    size = vocabulary_size(step)
    chain = _Chain(graph, modules, draft_vocabulary(graph, step), min(LISTED, size), steps)
    states = enter(graph, step)
    sampling = _sampling(graph, steps, size)
    ids = graph.input("input_ids", _INT64, [1, "tokens"])
    for k in range(steps):
        _lengths(graph, k)
    for k in range(max(steps, len(modules))):
        ids, states = chain.step(k, ids, states, sampling)
    chain.finish()
    return graph.build(f"draft.k{steps}", step.model)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Names of a step's results: `token` and `logsumexp` [1, 1], `weights` [1, T]."""

    found: Best
    token: str
    weights: str
    logsumexp: str


@dataclass(slots=True)
class _Chain:
    """The steps so far. `presents` are the latest K/V tensors by the name of their output."""

    graph: Replicas
    modules: list[onnx.ModelProto]
    vocabulary: str | None
    listed: int
    steps: int
    presents: dict[str, str] = field(default_factory=dict)
    drawn: list[_Drawn] = field(default_factory=list)

    def step(
        self, k: int, ids: str, states: str | None, sampling: Sampling
    ) -> tuple[str, str | None]:
        """Run step k; returns ids and states of the next."""
        graph, prefix = self.graph, f"step{k}"
        last_module = len(self.modules) - 1
        module = self.modules[min(k, last_module)]
        feeds = {"input_ids": ids, **self._lengths(k)}
        if states is not None:
            feeds["states"] = states
        results = self._buffers(module, k, feeds)
        # Steps behind this one run over one token as it is.
        run = only_last(module) if k == last_module else module
        found = graph.copy(run, prefix, feeds, results)
        token = self._select(k, prefix, found["logits"], sampling)
        following = found.get("next_states")
        if k < last_module:
            return self._shifted(prefix, ids, token), following
        if following is not None and k == last_module and run is module:
            following = last_row(graph, prefix, following)
        return token, following

    def _lengths(self, k: int) -> dict[str, str]:
        """Modules of their own run over the entries of the first step, and add none."""
        own = max(k - (len(self.modules) - 1), 0)
        last = self.graph.constant(LAST, np.array([-1], np.int64))
        return {
            "logits_index": last,
            "position_ids": f"position_ids.{own}",
            "seqlens_k.0": f"seqlens_k.{own}",
            "total_length.0": f"total_length.{own}",
        }

    def _buffers(self, module: onnx.ModelProto, k: int, feeds: dict[str, str]) -> dict[str, str]:
        """Feed the K/V; returns what this step's are called."""
        final = max(self.steps, len(self.modules)) - 1
        last = k == final or self.modules[min(k + 1, len(self.modules) - 1)] is not module
        results = {}
        for value in module.graph.input:
            if not value.name.startswith("past."):
                continue
            output = value.name.replace("past.", "present.", 1)
            if output not in self.presents:
                self.graph.inputs.append(value)
            feeds[value.name] = self.presents.get(output, value.name)
            results[output] = output if last else f"{output}.{k}"
            self.presents[output] = results[output]
            kind, shape = buffer(value)
            self.graph.output(results[output], kind, shape)
        return results

    def _select(self, k: int, prefix: str, logits: str, sampling: Sampling) -> str:
        graph = self.graph
        if k >= self.steps:
            return first_of(graph, prefix, best(graph, prefix, logits, 1, self.vocabulary))
        found = best(graph, prefix, logits, self.listed, self.vocabulary)
        token, weights = draw(graph, prefix, found, sampling, k)
        total = logsumexp(graph, prefix, logits, found)
        self.drawn.append(_Drawn(found, token, weights, total))
        return token

    def _shifted(self, prefix: str, ids: str, token: str) -> str:
        """The tokens one further on: without the first, with the one just drafted."""
        graph = self.graph
        begin = graph.constant("shift/begin", np.array([1], np.int64))
        end = graph.constant("shift/end", np.array([np.iinfo(np.int64).max], np.int64))
        axis = graph.constant("shift/axis", np.array([1], np.int64))
        rest = graph.add("Slice", [ids, begin, end, axis], f"{prefix}/rest")
        return graph.add("Concat", [rest, token], f"{prefix}/shifted", axis=1)

    def finish(self) -> None:
        graph, steps, count = self.graph, self.steps, self.listed
        flat = graph.constant("flat", np.array([-1], np.int64))
        for name, kind, tensors in (
            ("draft_ids", _INT64, [drawn.token for drawn in self.drawn]),
            ("logsumexp", _FLOAT, [drawn.logsumexp for drawn in self.drawn]),
        ):
            whole = graph.add("Concat", tensors, f"{name}/whole", axis=0)
            graph.add("Reshape", [whole, flat], name)
            graph.output(name, kind, [steps])
        for name, kind, tensors in (
            ("top_values", _FLOAT, [drawn.found.values for drawn in self.drawn]),
            ("top_ids", _INT64, [drawn.found.ids for drawn in self.drawn]),
            ("weights", _FLOAT, [drawn.weights for drawn in self.drawn]),
        ):
            graph.add("Concat", tensors, name, axis=0)
            graph.output(name, kind, [steps, count])


def draft_vocabulary(graph: Replicas, step: StepGraph) -> str | None:
    return None if step.ids is None else graph.constant(VOCABULARY, step.ids.astype(np.int64))


def vocabulary_size(step: StepGraph) -> int:
    """How many logits a step gives. A traced graph may say so only where it makes them."""
    if step.ids is not None:
        return len(step.ids)
    graph = step.model.graph
    size = dims(graph.output, "logits")[-1]
    return size or _width("logits", graph)


def _width(name: str, graph: onnx.GraphProto) -> int:
    """Of a tensor's last axis, by the linear layer behind it."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    producers = {output: node for node in graph.node for output in node.output}
    while name in producers:
        node = producers[name]
        if node.op_type in ("MatMul", "MatMulIntegerToFloat") and node.input[1] in tensors:
            return int(tensors[node.input[1]].dims[1])
        if node.op_type == "MatMulNBits":
            return int(attribute(node, "N", 0))
        name = node.input[0]
    raise AssertionError("no linear layer makes the logits")


def enter(graph: Replicas, step: StepGraph) -> str | None:
    """The states of the first step, made of the input `features`; None for draft models."""
    entered = step.entry or step.model
    source = entered.graph.input[0].name if step.entry else "states"
    if not any(value.name == source for value in entered.graph.input):
        return None
    width = dims(entered.graph.input, source)[-1]
    kind = element_type(entered.graph.input, source)
    graph.input("features", kind, ["tokens", width or "width"])
    if step.entry is None:
        return "features"
    made = graph.copy(step.entry, "entry", {source: "features"})
    return made[step.entry.graph.output[0].name]


def last_row(graph: Replicas, prefix: str, states: str) -> str:
    last = graph.constant(LAST, np.array([-1], np.int64))
    return graph.add("Gather", [states, last], f"{prefix}/last_state", axis=0)


def _sampling(graph: Replicas, steps: int, vocabulary: int) -> Sampling:
    return Sampling(
        noise=graph.input("noise", _FLOAT, [steps, vocabulary]),
        inverse_temperature=graph.input("inverse_temperature", _FLOAT, [1]),
        top_p=graph.input("top_p", _FLOAT, [1]),
        top_k=graph.input("top_k", _INT64, [1]),
    )


def _lengths(graph: Replicas, k: int) -> None:
    graph.input(f"position_ids.{k}", _INT64, [1, 1 if k else "tokens"])
    graph.input(f"seqlens_k.{k}", _INT32, [1])
    graph.input(f"total_length.{k}", _INT32, [])
