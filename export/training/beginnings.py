"""Heads before training: made of what the target has already.

A head's layer starts as the target's last one, its final norm as the target's, and its state as the
target's own, brought to about unit size: norms undo any scale, and updates of one size fit all
matrices then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from export.heads.block import DecoderBlock
from export.heads.eagle3 import Eagle3, Eagle3Shape, MidLayer
from export.heads.facts import TargetFacts
from export.heads.medusa import Medusa, MedusaShape
from export.heads.mtp import Mtp, MtpShape
from export.training.batches import Store
from export.training.parallel import DraftModel

_SPREAD = 0.02
_CALM = 0.4
"""Of the final norm's weight: at first drafts are wrong and should not be sure of themselves."""

_SMALLEST = 0.1
_SAMPLE = 6000
_PLACED = ("q_proj", "k_proj", "v_proj")
TAPS = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """Root mean squares [columns] of features; an attention sink's tokens do not count."""

    columns: NDArray[np.float32]

    @property
    def scale(self) -> Tensor:
        return torch.from_numpy(1 / self.columns)


def measure(store: Store, columns: slice, seed: int) -> Sizes:
    """Of some conversations that are drawn."""
    draw, found, count = np.random.default_rng(seed), list[NDArray[np.float32]](), 0
    for index in draw.permutation(len(store.items)):
        if store.items[index].held:
            continue
        batch = store.batch([store.items[index]], columns)
        found.append(batch.features.numpy())
        count += len(batch.ids)
        if count >= _SAMPLE:
            break
    values = np.concatenate(found)
    largest = np.abs(values).max(axis=1)
    values = values[largest < 20 * np.median(largest)]
    return Sizes(np.sqrt((values**2).mean(axis=0) + 1e-12))


def frequent_ids(counts: NDArray[np.float64], size: int, always: tuple[int, ...]) -> Tensor:
    """The `size` most frequent ids, rising; `always` among them.

    Of those that were not seen, low ones first: tokenizers number what they merge by frequency.
    """
    raised = counts + np.linspace(1e-3, 0, len(counts))
    raised[list(always)] = np.inf
    return torch.from_numpy(np.sort(np.argsort(-raised, kind="stable")[:size]))


def begin_eagle3(facts: TargetFacts, model: Any, sizes: Sizes) -> Eagle3:
    """Reads features times `sizes.scale`, and drafts the whole vocabulary; see `finish_eagle3`."""
    hidden = facts.hidden
    head = _eagle3(facts, None)
    last = sizes.columns[-hidden:]
    unit = float(np.median(last))
    with torch.no_grad():
        head.fc.weight.zero_()
        head.fc.weight[:, -hidden:] = torch.diag(torch.from_numpy(last / unit))
        _copy_layer(head.midlayer, model, unit)
        head.midlayer.hidden_norm.weight.copy_(_last_layer(model).input_layernorm.weight)
        head.norm.weight.copy_(_CALM * _final_norm(model).weight)
    return head


def finish_eagle3(head: Eagle3, facts: TargetFacts, scale: Tensor, draft_ids: Tensor) -> Eagle3:
    """A copy that reads features as they are and drafts `draft_ids`: its LM head is the target's,
    so that which rows of it are used need not be known before."""
    finished = _eagle3(facts, draft_ids)
    finished.load_state_dict(head.state_dict(), strict=False)
    with torch.no_grad():
        finished.fc.weight.mul_(scale)
    return finished


def _eagle3(facts: TargetFacts, draft_ids: Tensor | None) -> Eagle3:
    shape = Eagle3Shape(facts.block, facts.vocab_size, TAPS * facts.hidden, own_head=False)
    return Eagle3(shape, facts.rotary(), draft_ids, facts.embeddings, facts.lm_head)


def begin_mtp(facts: TargetFacts, model: Any, sizes: Sizes, unit: float) -> Mtp:
    """One module of the MiMo family, whose states are all alike: behind a final norm.

    `unit` is the size of the stream that enters the target's last layers.
    """
    shape = MtpShape(facts.block, facts.vocab_size, family="mimo")
    head = Mtp(shape, facts.rotary(), facts.embeddings, facts.lm_head)
    module: Any = head.module_of(0)
    final = _final_norm(model).weight.detach()
    size = float(np.sqrt((sizes.columns**2).mean()))
    with torch.no_grad():
        floor = _SMALLEST * final.abs().median()
        safe = torch.where(final.abs() < floor, floor.copysign(final), final)
        module.hidden_layernorm.weight.copy_(size / safe)
        module.input_proj.weight.normal_(0, _SPREAD)
        module.input_proj.weight[:, : facts.hidden] = torch.eye(facts.hidden)
        _copy_layer(module, model, unit)
        module.input_layernorm.weight.copy_(_last_layer(model).input_layernorm.weight)
        module.final_layernorm.weight.copy_(final)
    return head


def begin_mtp_with(head: Mtp, learned: Mapping[str, Tensor]) -> None:
    """Give an MTP module what the layer of an EAGLE-3 head of the same target has `learned`: of q,
    k and v what they make of the state."""
    module: Any = head.module_of(0)
    hidden = module.input_proj.weight.shape[0]
    layer = {
        name.removeprefix("midlayer."): value
        for name, value in learned.items()
        if name.startswith("midlayer.")
    }
    layer["input_layernorm.weight"] = layer.pop("hidden_norm.weight")
    for name in _PLACED:
        key = f"self_attn.{name}.weight"
        layer[key] = layer[key][:, -hidden:]
    with torch.no_grad():
        for name, value in layer.items():
            module.get_parameter(name).copy_(value)
        module.final_layernorm.weight.copy_(learned["norm.weight"])


def begin_medusa(facts: TargetFacts, heads: int) -> Medusa:
    """Residual blocks that change nothing yet."""
    return Medusa(MedusaShape(facts.hidden, facts.vocab_size, heads), facts.lm_head)


@dataclass(frozen=True, slots=True)
class Stream:
    """How large a target's residual stream is: `sizes` where it enters some of its layers, between
    which its logarithm is taken to grow evenly."""

    sizes: Mapping[int, float]

    def __call__(self, layer: int) -> float:
        layers = sorted(self.sizes)
        logs = np.log([self.sizes[known] for known in layers])
        return float(np.exp(np.interp(layer, layers, logs)))


def begin_draft(facts: TargetFacts, model: Any, kept: Sequence[int], stream: Stream) -> DraftModel:
    """`kept` of the target's layers, and its final norm.

    Layers that have lost those before them get a smaller stream than they had, and must not drown
    it: what they add is made smaller by as much.
    """
    drafter = DraftModel(facts.block, len(kept), facts.rotary(), facts.embeddings, facts.lm_head)
    theirs: Any = model.get_decoder()
    ours: Any = drafter.model["layers"]
    size = stream(0)
    for own, index in zip(ours, kept, strict=True):
        own.load_state_dict(theirs.layers[index].state_dict())
        unit = stream(index) / size
        with torch.no_grad():
            for added in (own.self_attn.o_proj, own.mlp.down_proj):
                for parameter in added.parameters():
                    parameter.div_(unit)
        size = stream(index + 1) / unit
    with torch.no_grad():
        drafter.model["norm"].get_parameter("weight").copy_(_CALM * theirs.norm.weight)
    return drafter


def _copy_layer(block: DecoderBlock | MidLayer, model: Any, unit: float) -> None:
    """The target's last layer, for a stream that is `unit` times smaller; where q, k and v read
    more than the stream, it is the last that they read."""
    layer = _last_layer(model)
    for name in _PLACED:
        own, theirs = getattr(block.self_attn, name), getattr(layer.self_attn, name)
        own.weight.normal_(0, _SPREAD)
        own.weight[:, -theirs.weight.shape[1] :] = theirs.weight
    block.self_attn.o_proj.weight.copy_(layer.self_attn.o_proj.weight / unit)
    block.post_attention_layernorm.weight.copy_(layer.post_attention_layernorm.weight)
    block.mlp.gate_proj.weight.copy_(layer.mlp.gate_proj.weight)
    block.mlp.up_proj.weight.copy_(layer.mlp.up_proj.weight)
    block.mlp.down_proj.weight.copy_(layer.mlp.down_proj.weight / unit)


def _last_layer(model: Any) -> Any:
    return model.get_decoder().layers[-1]


def _final_norm(model: Any) -> Any:
    return model.get_decoder().norm
