"""Self-speculation: the target drafts for itself with some of its layers left out.

Draft & Verify (arXiv 2309.08168); leaving out the last layers is early exit. Such a drafter has
neither weights nor K/V of its own: its graphs read the target's weights file, and their K/V are the
buffers that the target's layers of the same slot have. What a draft leaves there is behind the
slot's length, and verification writes over it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import NodeProto

from export.graph import Graph, attribute
from export.heads.step import StepGraph
from export.quantization.structure import FINAL_NORM, NORMS
from models.errors import UserError

_ATTENTION = "GroupQueryAttention"
_SIMPLE_NORM = "SimplifiedLayerNormalization"
_SKIP_SUM = 3
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_COUNT = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """Which layers draft: `kept`; or the best `count`, or where that is None the best set."""

    kept: tuple[int, ...] = ()
    count: int | None = None


def parse_layers(text: str, layers: int) -> LayerChoice:
    """What `--self-speculative LAYERS` means for a target of `layers` layers.

    `auto`: the best set of layers; `24`: the best 24; `0-11,15-29`: these, counted from 0
    (`0-11`: early exit behind twelve, `7-7`: one alone).
    """
    text = text.replace(" ", "")
    if text == "auto":
        return LayerChoice()
    if _COUNT.fullmatch(text):
        if not 1 <= int(text) <= layers:
            raise _invalid(text, f"the target has 1 to {layers} layers to keep")
        return LayerChoice(count=int(text))
    kept: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise _invalid(text, "auto, a number of layers, or the layers to keep as in 0-11,15-29")
        begin, end = int(found[1]), int(found[2] or found[1])
        if not begin <= end < layers:
            raise _invalid(text, f"{part} is no range of the layers 0-{layers - 1}")
        kept.update(range(begin, end + 1))
    return LayerChoice(kept=tuple(sorted(kept)))


def layer_count(single: onnx.ModelProto) -> int:
    return sum(node.op_type == _ATTENTION for node in single.graph.node)


def keep_layers(single: onnx.ModelProto, kept: Sequence[int]) -> StepGraph:
    """The step graph of `single` with the layers `kept` alone, in their order.

    `single` is the target's graph for one row, canonical or stored in any weight type; it is left
    as it is. Initializers are taken over, external ones with the place they name: saved beside the
    target's weights, the graph needs no file of its own. K/V are numbered 0..n-1:
    `past.i.0.*` is for the buffer of the target's layer `kept[i]` (`DrafterSpec.kept_layers`).
    """
    layers = layer_count(single)
    assert kept, "at least one layer"
    assert list(kept) == sorted(set(kept) & set(range(layers))), f"{kept} of {layers} layers"
    model = onnx.ModelProto()
    model.CopyFrom(single)
    _declare(model, kept)
    graph = Graph(model)
    _rewire(graph, kept, layers)
    graph.finish()
    _renumber(model, kept)
    return StepGraph(model=model, entry=None, ids=None)


def _declare(model: onnx.ModelProto, kept: Sequence[int]) -> None:
    """Inputs and outputs of a step: K/V of the layers kept, and of the rest `logits` alone."""
    for values, fixed in ((model.graph.input, None), (model.graph.output, ("logits",))):
        wanted = [
            value
            for value in values
            if (layer := _layer_of(value.name)) in kept
            or (layer is None and (fixed is None or value.name in fixed))
        ]
        del values[:]
        values.extend(wanted)


def _rewire(graph: Graph, kept: Sequence[int], layers: int) -> None:
    """The norm that begins a layer reads the residual stream as the last kept layer leaves it."""
    norms = {node.name: node for node in graph.of_type(*NORMS)}
    first = [norms[f"layers.{layer}.attention_norm"] for layer in range(layers)]
    first.append(norms[FINAL_NORM])
    # What a norm reads but its weight: the stream, and what is to be added to it first.
    streams = [tuple(norm.input[:-1]) for norm in first]
    before = 0
    for layer in (*kept, layers):
        if layer != before:
            _read(graph, first[layer], streams[before])
        before = layer + 1


def _read(graph: Graph, norm: NodeProto, stream: tuple[str, ...]) -> None:
    if len(stream) == 2:
        for position, name in enumerate(stream):
            graph.set_input(norm, position, name)
        return
    # The embeddings, to which nothing is added.
    graph.replace_uses(norm.output[_SKIP_SUM], stream[0])
    graph.remove(norm)
    graph.add(
        _SIMPLE_NORM,
        [stream[0], norm.input[-1]],
        [norm.output[0]],
        name=norm.name,
        axis=-1,
        epsilon=attribute(norm, "epsilon", 1e-5),
        stash_type=1,
    )


def _renumber(model: onnx.ModelProto, kept: Sequence[int]) -> None:
    numbers = {layer: number for number, layer in enumerate(kept)}
    for value in (*model.graph.input, *model.graph.output):
        value.name = _renamed(value.name, numbers)
    for node in model.graph.node:
        if node.op_type == _ATTENTION:
            for names in (node.input, node.output):
                names[:] = [_renamed(name, numbers) for name in names]


def _renamed(name: str, numbers: dict[int, int]) -> str:
    layer = _layer_of(name)
    if layer is None:
        return name
    kind, _, rest = name.split(".", 2)
    return f"{kind}.{numbers[layer]}.{rest}"


def _layer_of(name: str) -> int | None:
    """Of a K/V input or output."""
    kind, _, rest = name.partition(".")
    return int(rest.split(".")[0]) if kind in ("past", "present") and rest else None


def _invalid(text: str, problem: str) -> UserError:
    return UserError(
        f"--self-speculative {text}: {problem}.",
        code="invalid_option",
        param="--self-speculative",
    )
