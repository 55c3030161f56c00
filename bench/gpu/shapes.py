"""The shapes of the targets that the check builds: as large as those it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama-like decoder. `context` are the tokens of a slot."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int = 2048

    @property
    def parameters(self) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate
        return self.layers * layer + 2 * self.hidden * self.vocabulary


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "tiny": Shape("tiny", 2, 128, 256, 4, 2, 32, 512, 256),
        "135m": Shape("135m", 30, 576, 1536, 9, 3, 64, 49_152),
        "1b": Shape("1b", 16, 2048, 8192, 32, 8, 64, 128_256),
        "8b": Shape("8b", 32, 4096, 14_336, 32, 8, 128, 128_256),
    }
)
"""Those of SmolLM2-135M, Llama-3.2-1B and Llama-3.1-8B; the head has weights of its own."""


_CUT_HIDDEN, _CUT_VOCABULARY = 512, 2048
"""On a processor, whose kernels for half precision are slow: a run in well under a second."""


def shape_of(name: str, *, on_cpu: bool, quick: bool) -> Shape:
    """What stands for `name`: on a processor fewer and narrower layers, and with `quick` a tiny
    one."""
    shape = SHAPES[name]
    if quick and name != "tiny":
        return replace(SHAPES["tiny"], name=f"{name}-tiny")
    if on_cpu and name != "tiny":
        factor = max(1, shape.hidden // _CUT_HIDDEN)
        return replace(
            shape,
            name=f"{name}-cut",
            layers=2,
            hidden=shape.hidden // factor,
            intermediate=shape.intermediate // factor,
            heads=shape.heads // factor,
            kv_heads=shape.kv_heads // factor,
            vocabulary=_CUT_VOCABULARY,
            context=512,
        )
    return shape


def drafter_shape(target: Shape) -> Shape:
    """A draft model of one layer."""
    hidden = max(target.hidden // 4, 64)
    heads = max(hidden // target.head_dim, 1)
    return replace(
        target,
        name=f"{target.name}-draft",
        layers=1,
        hidden=hidden,
        intermediate=2 * hidden,
        heads=heads,
        kv_heads=1,
    )
