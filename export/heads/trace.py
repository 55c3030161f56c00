"""From a head to the graph of one of its steps, in the target's own operators.

The head is traced as it is; for the time of the trace its norms, its SiLU and its attention are
those of `export.kernels`. The result is canonical as the target's graph is: q, k, v and gate, up
are one linear layer each, weights are called by what they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.heads.attention import Rotary
from export.heads.eagle import Eagle
from export.heads.eagle3 import Eagle3
from export.heads.mtp import Mtp
from export.heads.operators import export, flat
from export.heads.step import StepGraph
from export.kernels import group_query_attention
from export.passes import canonicalise

SteppingModule = Eagle | Eagle3 | Mtp
_TOKENS, _CAPACITY = 5, 16
_OPSET = 18


def trace_head(head: SteppingModule) -> StepGraph:
    """The graphs of a head that drafts a token a step."""
    modules = head.shape.modules if isinstance(head, Mtp) else 1
    first, *later = (canonicalise(_trace_step(head, module)) for module in range(modules))
    for module, graph in enumerate(later, start=1):
        _tell_apart(graph, first, f"modules.{module}.")
    entry = _trace_entry(head) if isinstance(head, Eagle3) else None
    if entry is not None:
        _tell_apart(entry, first, "entry.")
    ids = head.draft_ids()
    return StepGraph(
        model=first,
        entry=entry,
        ids=None if ids is None else ids.cpu().numpy().astype(np.int64),
        later=tuple(later),
    )


def _tell_apart(graph: onnx.ModelProto, first: onnx.ModelProto, prefix: str) -> None:
    """Initializers that are called like another one of `first` get a name of their own."""
    known = {tensor.name: tensor.raw_data for tensor in first.graph.initializer}
    renamed: dict[str, str] = {}
    for tensor in graph.graph.initializer:
        if known.get(tensor.name, tensor.raw_data) != tensor.raw_data:
            renamed[tensor.name] = prefix + tensor.name
            tensor.name = renamed[tensor.name]
    for node in graph.graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = renamed.get(name, name)


class TracedAttention:
    """Attention as one node on static K/V buffers, which rotates q and k itself."""

    def __init__(self, past: dict[int, tuple[Tensor, Tensor]], lengths: tuple[Tensor, Tensor]):
        self.present: dict[int, tuple[Tensor, Tensor]] = {}
        self._past, self._lengths = past, lengths

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rotary: Rotary, positions: Tensor
    ) -> Tensor:
        heads, width = int(q.shape[1]), int(q.shape[3])
        output, *present = group_query_attention(
            (_merged(q), _merged(k), _merged(v)),
            self._past[layer],
            self._lengths,
            (rotary.cos, rotary.sin, positions),
            {
                "num_heads": heads,
                "kv_num_heads": int(k.shape[1]),
                "do_rotary": 1,
                "scale": float(width**-0.5),
                "local_window_size": -1,
                "softcap": 0.0,
            },
        )
        self.present[layer] = (present[0], present[1])
        return output.reshape(1, -1, heads, width).transpose(1, 2)


class _Embed(nn.Module):
    """A scope for the node that looks tokens up."""

    def __init__(self, head: SteppingModule) -> None:
        super().__init__()
        self.__dict__["owner"] = head

    def forward(self, ids: Tensor) -> Tensor:
        embeds: Tensor = self.__dict__["owner"].embed(ids)
        return embeds


class _Project(nn.Module):
    """A scope for the LM head."""

    def __init__(self, head: SteppingModule, module: int) -> None:
        super().__init__()
        self.__dict__["owner"], self.module = head, module

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.__dict__["owner"].logits(states, module=self.module)
        return logits


class _Step(nn.Module):
    """One step of a head with the inputs and outputs of a `StepGraph`."""

    def __init__(self, head: SteppingModule, module: int) -> None:
        super().__init__()
        self.kv_layers = _kv_layers(head, module)
        # Scopes are named by the first path to a module: a layer's by the number of its K/V.
        self.layers = nn.ModuleDict(_layers(head, module))
        self.embed_tokens = _Embed(head)
        self.lm_head = _Project(head, module)
        self.head = head
        self.module = module

    def forward(
        self,
        input_ids: Tensor,
        states: Tensor,
        logits_index: Tensor,
        position_ids: Tensor,
        seqlens_k: Tensor,
        total_length: Tensor,
        past: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        pairs = zip(past[::2], past[1::2], strict=True)
        attention = TracedAttention(
            dict(zip(self.kv_layers, pairs, strict=True)), (seqlens_k, total_length)
        )
        embeds = self.embed_tokens(input_ids)
        x = self.head.step(embeds, states[None], attention, position_ids, self.module)
        logits = self.lm_head(x.index_select(1, logits_index))
        present = [part for layer in self.kv_layers for part in attention.present[layer]]
        return (flat(logits), flat(x), *present)


def _kv_layers(head: SteppingModule, module: int) -> list[int]:
    return [module] if isinstance(head, Mtp) else list(range(head.kv_layers))


def _layers(head: SteppingModule, module: int) -> dict[str, nn.Module]:
    if isinstance(head, Mtp):
        return {str(module): head.module_of(module)}
    if isinstance(head, Eagle3):
        return {str(i): layer for i, layer in enumerate([head.midlayer, *head.more_layers])}
    return {str(i): layer for i, layer in enumerate(head.layers)}


def _trace_step(head: SteppingModule, module: int) -> onnx.ModelProto:
    hidden, layers = head.shape.block.hidden, _kv_layers(head, module)
    positions = torch.arange(_TOKENS)
    shape = (1, head.kv_heads, _CAPACITY, head.head_dim)
    arguments = (
        positions[None] + 1,
        torch.zeros(_TOKENS, hidden),
        positions[1:4],
        positions[None],
        torch.tensor([_TOKENS - 1], dtype=torch.int32),
        torch.tensor(_TOKENS, dtype=torch.int32),
        [torch.zeros(shape) for _ in range(2 * len(layers))],
    )
    axes: dict[str, dict[int, str]] = {
        "input_ids": {1: "tokens"},
        "states": {0: "tokens"},
        "logits_index": {0: "wanted"},
        "position_ids": {1: "tokens"},
        "seqlens_k.0": {},
        "total_length.0": {},
    }
    pasts, presents = (
        [f"{prefix}.{layer}.0.{part}" for layer in layers for part in ("key", "value")]
        for prefix in ("past", "present")
    )
    outputs = {"logits": {0: "wanted"}, "next_states": {0: "tokens"}}
    buffers = {name: {2: "capacity.0"} for name in (*pasts, *presents)}
    return export(
        _Step(head, module),
        arguments,
        [*axes, *pasts],
        [*outputs, *presents],
        axes | outputs | buffers,
    )


class _Entry(nn.Module):
    def __init__(self, head: Eagle3) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Tensor) -> Tensor:
        return flat(self.head.enter(features[None]))


def _trace_entry(head: Eagle3) -> onnx.ModelProto:
    features = torch.zeros(_TOKENS, head.shape.taps)
    axes = {"features": {0: "tokens"}, "states": {0: "tokens"}}
    return canonicalise(export(_Entry(head), (features,), ["features"], ["states"], axes))


def _merged(x: Tensor) -> Tensor:
    """[1, heads, N, head_dim] -> [1, N, heads * head_dim]."""
    # Widths as plain numbers: traced ones would become shape arithmetic in the graph.
    return x.transpose(1, 2).reshape(1, -1, int(x.shape[1]) * int(x.shape[3]))
