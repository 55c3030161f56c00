"""From Medusa heads to the one graph that lets all of them answer."""

from __future__ import annotations

import re

import onnx
import torch
from onnx import TensorProto
from torch import Tensor, nn

from export.decoder import TOP_K
from export.heads.medusa import Medusa
from export.heads.operators import export, flat
from export.passes import canonicalise

_SCOPE = re.compile(
    r"^/(heads\.\d+\.\d+(?=/linear/)|lm_heads\.\d+(?=/MatMul))/(?:linear/)?(?:MatMul|Add)$"
)


def trace_medusa(heads: Medusa) -> onnx.ModelProto:
    """Canonical fp32. `features` [1, hidden] -> per head [H]: `top_values` and `top_ids` [H, T],
    raw logits falling, and `logsumexp` [H] at temperature 1.
    """
    features = torch.zeros(1, heads.shape.hidden)
    outputs = ["top_values", "top_ids", "logsumexp"]
    graph = canonicalise(export(_Heads(heads), (features,), ["features"], outputs, {}))
    _name_weights(graph)
    return graph


class _Heads(nn.Module):
    def __init__(self, heads: Medusa) -> None:
        super().__init__()
        # A shared LM head is read once, for all heads side by side.
        own = range(heads.shape.heads) if heads.shape.own_head else ()
        self.lm_head = _Project(heads, 0)
        self.lm_heads = nn.ModuleList(_Project(heads, head) for head in own)
        self.heads = heads

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count = self.heads.shape.heads
        states = [self.heads.states(features[None], head) for head in range(count)]
        if self.heads.shape.own_head:
            pairs = zip(self.lm_heads, states, strict=True)
            logits = flat(torch.cat([project(state) for project, state in pairs], dim=1))
        else:
            logits = flat(self.lm_head(torch.cat(states, dim=1)))
        values, ids = torch.topk(logits, min(TOP_K, int(logits.shape[-1])))
        # As in the target's graph: a log-softmax uses all threads, ReduceLogSumExp one.
        logsumexp = (logits[:, :1] - torch.log_softmax(logits, -1)[:, :1]).reshape(-1)
        return values, ids, logsumexp


class _Project(nn.Module):
    """A scope for one head's LM head."""

    def __init__(self, heads: Medusa, head: int) -> None:
        super().__init__()
        self.__dict__["owner"], self.head = heads, head

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.__dict__["owner"].logits(states, self.head)
        return logits


def _name_weights(model: onnx.ModelProto) -> None:
    """Of head i: `heads.{i}.{layer}` for its blocks, `lm_heads.{i}` for an LM head of its own.

    Tracing shares weights that are equal, as those of heads before training are: each gets its own.
    """
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    named: dict[str, TensorProto] = {}
    for node in model.graph.node:
        scope = _SCOPE.match(node.name)
        if scope is None or node.op_type not in ("MatMul", "Add"):
            continue
        name = scope[1] + ("_bias" if node.op_type == "Add" else "")
        for position, read in enumerate(node.input):
            if read in tensors:
                named[name] = TensorProto()
                named[name].CopyFrom(tensors[read])
                named[name].name = node.input[position] = name
        node.name = name
    read_still = {name for node in model.graph.node for name in node.input}
    kept = [tensor for name, tensor in tensors.items() if name in read_still - named.keys()]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, *named.values()])
