"""What a published head computes, written out from its tensors: no cache, nothing shared with it.

Every draft step computes all entries again. An entry pairs the feature (or state) at a position
with the token behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from export.heads.facts import TargetFacts
from tests.head_checkpoints import HEADS, KV_HEADS, LAYERS, Published

_EPSILON = 1e-5
Tensors = Mapping[str, Tensor]
Layer = Callable[[Tensor, Tensor], Tensor]


def formula_draft(
    published: Published, facts: TargetFacts, tokens: Sequence[int], features: Tensor, steps: int
) -> list[int]:
    """The greedy draft behind `tokens`; `features` are the target's, one for each but the last."""
    tensors = _renamed(published)
    if "midlayer.hidden_norm.weight" in tensors:
        return _eagle3(tensors, published.config, facts, tokens, features, steps)
    if "fc.weight" in tensors:
        return _eagle(tensors, facts, tokens, features, steps)
    return _mtp(tensors, published.config, facts, tokens, features, steps)


def formula_medusa(published: Published, facts: TargetFacts, feature: Tensor) -> list[int]:
    tensors, layers = published.tensors, published.config["medusa_num_layers"]
    ids = []
    for head in range(published.config["medusa_num_heads"]):
        x = feature
        for layer in range(layers):
            weight, bias = (tensors[f"{head}.{layer}.linear.{k}"] for k in ("weight", "bias"))
            y = weight @ x + bias
            x = x + y * torch.sigmoid(y)
        ids.append(int((tensors.get(f"{head}.{layers}.weight", facts.lm_head) @ x).argmax()))
    return ids


def _renamed(published: Published) -> dict[str, Tensor]:
    """EAGLE heads under SafeAILab's names; others as they are."""
    names = published.tensors
    swaps = {"fusion_fc.": "fc.", "transformer.": "layers.0."}
    if "layers.0.hidden_norm.weight" in names:
        swaps = {"layers.0.": "midlayer."}
    renamed = {}
    for name, tensor in names.items():
        for theirs, ours in swaps.items():
            if name.startswith(theirs):
                name = ours + name.removeprefix(theirs)
        renamed[name] = tensor
    return renamed


def _eagle3(
    tensors: Tensors,
    config: Mapping[str, Any],
    facts: TargetFacts,
    tokens: Sequence[int],
    features: Tensor,
    steps: int,
) -> list[int]:
    embeddings = tensors.get("embed_tokens.weight", facts.embeddings)
    offsets = tensors.get("d2t", torch.zeros(len(facts.lm_head), dtype=torch.long))
    ids = torch.arange(len(offsets)) + offsets
    head = tensors.get("lm_head.weight", facts.lm_head[ids])
    if "input_norm.weight" in tensors:
        features = _norm(features, tensors["input_norm.weight"])

    def layer(embeds: Tensor, states: Tensor) -> Tensor:
        normed = _norm(states, tensors["midlayer.hidden_norm.weight"])
        embeds = _norm(embeds, tensors["midlayer.input_layernorm.weight"])
        residual = normed if config.get("norm_before_residual") else states
        x = _rest(tensors, "midlayer.", torch.cat([embeds, normed], -1), residual)
        if "layers.1.input_layernorm.weight" in tensors:
            x = _plain(tensors, "layers.1.", x)
        return x

    def read(state: Tensor) -> int:
        return int(ids[(head @ _norm(state, tensors["norm.weight"])).argmax()])

    states = features @ tensors["fc.weight"].T
    return _autoregress(layer, read, embeddings, tokens, states, steps)


def _eagle(
    tensors: Tensors, facts: TargetFacts, tokens: Sequence[int], features: Tensor, steps: int
) -> list[int]:
    embeddings = tensors.get("embed_tokens.weight", facts.embeddings)
    head = tensors.get("lm_head.weight", facts.lm_head)

    def layer(embeds: Tensor, states: Tensor) -> Tensor:
        if "embedding_layernorm.weight" in tensors:
            embeds = _norm(embeds, tensors["embedding_layernorm.weight"])
        x = _linear(tensors, "fc", torch.cat([embeds, states], -1))
        if "layers.0.input_layernorm.weight" in tensors:
            x = _plain(tensors, "layers.0.", x)
        else:
            x = _rest(tensors, "layers.0.", x, x)
        if "layers.1.input_layernorm.weight" in tensors:
            x = _plain(tensors, "layers.1.", x)
        if "pre_lm_head_layernorm.weight" in tensors:
            x = _norm(x, tensors["pre_lm_head_layernorm.weight"])
        return x

    def read(state: Tensor) -> int:
        return int((head @ state).argmax())

    return _autoregress(layer, read, embeddings, tokens, features, steps)


def _mtp(
    tensors: Tensors,
    config: Mapping[str, Any],
    facts: TargetFacts,
    tokens: Sequence[int],
    features: Tensor,
    steps: int,
) -> list[int]:
    """Module k drafts token k; the last one drafts the rest, an entry more for each."""
    modules = config["num_nextn_predict_layers"]
    share = config.get("partial_rotary_factor", 1.0)
    deepseek = f"model.layers.{LAYERS}.enorm.weight" in tensors
    known, count, states, base = list(tokens), len(tokens) - 1, features, features
    for step in range(steps):
        module = min(step, modules - 1)
        prefix = f"model.layers.{LAYERS}." if deepseek else f"model.mtp_layers.{module}."
        embeddings = tensors.get(f"{prefix}embed_tokens.weight", facts.embeddings)
        embeds = embeddings[torch.tensor(known[1 + module :])]
        base = states if step < modules else torch.cat([base, states[-1:]])
        if deepseek:
            token, state = (
                _norm(x, tensors[f"{prefix}{name}.weight"])
                for x, name in ((embeds, "enorm"), (base, "hnorm"))
            )
            x = torch.cat([token, state], -1) @ tensors[f"{prefix}eh_proj.weight"].T
        else:
            token, state = (
                _norm(x, tensors[f"{prefix}{name}_layernorm.weight"])
                for x, name in ((embeds, "token"), (base, "hidden"))
            )
            x = torch.cat([state, token], -1) @ tensors[f"{prefix}input_proj.weight"].T
        x = _plain(tensors, prefix, x, share)
        if deepseek:
            states, read = x, _norm(x[-1], tensors[f"{prefix}shared_head.norm.weight"])
        else:
            states = _norm(x, tensors[f"{prefix}final_layernorm.weight"])
            read = states[-1]
        head = tensors.get(f"{prefix}shared_head.head.weight", facts.lm_head)
        known.append(int((head @ read).argmax()))
    assert len(x) == count + max(0, steps - modules)
    return known[len(tokens) :]


def _autoregress(
    layer: Layer,
    read: Callable[[Tensor], int],
    embeddings: Tensor,
    tokens: Sequence[int],
    states: Tensor,
    steps: int,
) -> list[int]:
    known = list(tokens)
    for _ in range(steps):
        new = layer(embeddings[torch.tensor(known[1:])], states)
        known.append(read(new[-1]))
        states = torch.cat([states, new[-1:]])
    return known[len(tokens) :]


def _plain(tensors: Tensors, prefix: str, x: Tensor, share: float = 1.0) -> Tensor:
    normed = _norm(x, tensors[f"{prefix}input_layernorm.weight"])
    return _rest(tensors, prefix, normed, x, share)


def _rest(
    tensors: Tensors, prefix: str, read: Tensor, residual: Tensor, share: float = 1.0
) -> Tensor:
    """A layer from its attention on: q, k and v read `read`."""
    x = residual + _attention(tensors, f"{prefix}self_attn.", read, share)
    y = _norm(x, tensors[f"{prefix}post_attention_layernorm.weight"])
    gate, up = (y @ tensors[f"{prefix}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    return x + (gate * torch.sigmoid(gate) * up) @ tensors[f"{prefix}mlp.down_proj.weight"].T


def _attention(tensors: Tensors, prefix: str, x: Tensor, share: float) -> Tensor:
    count = len(x)
    q, k, v = (_linear(tensors, f"{prefix}{name}_proj", x) for name in ("q", "k", "v"))
    q, k, v = q.view(count, HEADS, -1), k.view(count, KV_HEADS, -1), v.view(count, KV_HEADS, -1)
    if f"{prefix}q_norm.weight" in tensors:
        q = _norm(q, tensors[f"{prefix}q_norm.weight"])
        k = _norm(k, tensors[f"{prefix}k_norm.weight"])
    q, k = _rotate(q, share), _rotate(k, share)
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5
    ahead = torch.ones(count, count, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
    merged = torch.einsum("hij,jhd->ihd", weights, v)
    return merged.reshape(count, -1) @ tensors[f"{prefix}o_proj.weight"].T


def _rotate(x: Tensor, share: float) -> Tensor:
    """Pairs (i, i + half) of the first `share` of a head turn by position / 5000^(2i / width)."""
    width = int(x.shape[-1] * share)
    half = width // 2
    angles = torch.arange(len(x))[:, None] * 5000.0 ** (-2 * torch.arange(half) / width)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]
    turned = torch.complex(x[..., :half], x[..., half:width]) * turn
    return torch.cat([turned.real, turned.imag, x[..., width:]], -1)


def _linear(tensors: Tensors, name: str, x: Tensor) -> Tensor:
    y = x @ tensors[f"{name}.weight"].T
    return y + tensors[f"{name}.bias"] if f"{name}.bias" in tensors else y


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + _EPSILON) * weight
