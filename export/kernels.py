"""The fused operators of the exported graph, as torch functions with an ONNX symbolic.

Each computes the right shape in eager mode while tracing (and nothing useful: parity is checked
on the exported graph) and emits one node, so that no operator depends on a runtime's pattern
fusions.
"""

from __future__ import annotations

from typing import Any

import torch

DOMAIN = "com.microsoft"
Tensor = torch.Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    output: Tensor = RmsNorm.apply(x, weight, epsilon)  # type: ignore[no-untyped-call]
    return output


def silu(x: Tensor) -> Tensor:
    output: Tensor = Silu.apply(x)  # type: ignore[no-untyped-call]
    return output


def gelu_tanh(x: Tensor) -> Tensor:
    output: Tensor = GeluTanh.apply(x)  # type: ignore[no-untyped-call]
    return output


def group_query_attention(
    qkv: tuple[Tensor, Tensor, Tensor],
    past: tuple[Tensor, Tensor],
    lengths: tuple[Tensor, Tensor],
    rotary: tuple[Tensor | None, Tensor | None, Tensor | None],
    attributes: dict[str, int | float],
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v [1, N, heads * head_dim]; lengths (seqlens_k, total_length); rotary (cos, sin, ids).

    Returns the output, shaped as q, and the present buffers.
    """
    outputs: tuple[Tensor, Tensor, Tensor] = GroupQueryAttention.apply(  # type: ignore[no-untyped-call]
        *qkv, *past, *lengths, *rotary, attributes
    )
    return outputs


class RmsNorm(torch.autograd.Function):
    """`SimplifiedLayerNormalization` over the last axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        return x * weight

    @staticmethod
    def symbolic(g: Any, x: Any, weight: Any, epsilon: float) -> Any:
        node = g.op(
            f"{DOMAIN}::SimplifiedLayerNormalization",
            x,
            weight,
            axis_i=-1,
            epsilon_f=epsilon,
            stash_type_i=1,
        )
        node.setType(x.type())
        return node


class Silu(torch.autograd.Function):
    """`QuickGelu` with alpha 1: x * sigmoid(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        node = g.op(f"{DOMAIN}::QuickGelu", x, alpha_f=1.0)
        node.setType(x.type())
        return node


class GeluTanh(torch.autograd.Function):
    """`FastGelu`: the tanh approximation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        node = g.op(f"{DOMAIN}::FastGelu", x)
        node.setType(x.type())
        return node


class GroupQueryAttention(torch.autograd.Function):
    """Causal attention on static K/V buffers. q, k, v are [1, N, heads * head_dim].

    Returns [1, N, heads * head_dim] and the present buffers, written in place by the runtime.
    `rotary` is None for layers without rotary embedding.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        past_key: Tensor,
        past_value: Tensor,
        seqlens_k: Tensor,
        total_length: Tensor,
        cos: Tensor | None,
        sin: Tensor | None,
        position_ids: Tensor | None,
        attributes: dict[str, int | float],
    ) -> tuple[Tensor, Tensor, Tensor]:
        return q.clone(), past_key.clone(), past_value.clone()

    @staticmethod
    def symbolic(
        g: Any,
        q: Any,
        k: Any,
        v: Any,
        past_key: Any,
        past_value: Any,
        seqlens_k: Any,
        total_length: Any,
        cos: Any,
        sin: Any,
        position_ids: Any,
        attributes: dict[str, int | float],
    ) -> Any:
        inputs = [q, k, v, past_key, past_value, seqlens_k, total_length]
        if attributes["do_rotary"]:
            inputs += [cos, sin, position_ids]
        suffixed = {
            f"{name}_{'i' if isinstance(value, int) else 'f'}": value
            for name, value in attributes.items()
        }
        nodes = g.op(f"{DOMAIN}::GroupQueryAttention", *inputs, outputs=3, **suffixed)
        for node, like in zip(nodes, (q, past_key, past_value), strict=True):
            node.setType(like.type())
        return nodes
