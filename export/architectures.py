"""What can be exported, and why the rest cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from models.errors import UserError


@dataclass(frozen=True, slots=True)
class Architecture:
    """A supported decoder. `norm_offset` is added to RMSNorm weights (Gemma stores w - 1)."""

    name: str
    norm_offset: float = 0.0


SUPPORTED = {
    "llama": Architecture("Llama"),
    "qwen2": Architecture("Qwen2"),
    "qwen3": Architecture("Qwen3"),
    "mistral": Architecture("Mistral"),
    "gemma2": Architecture("Gemma 2", norm_offset=1.0),
    "gemma3_text": Architecture("Gemma 3 (text)", norm_offset=1.0),
    "phi3": Architecture("Phi-3"),
    "smollm3": Architecture("SmolLM3"),
}

_RECURRENT = frozenset(
    {
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "lfm2",
        "mamba",
        "mamba2",
        "minimax",
        "nemotron_h",
        "qwen3_next",
        "recurrent_gemma",
        "rwkv",
        "xlstm",
        "zamba",
        "zamba2",
    }
)
_ROTARY_MULTIPLE = 16
_ACTIVATIONS = ("silu", "swish", "gelu_pytorch_tanh")


def check_supported(model_type: str, checkpoint: str) -> Architecture:
    """The architecture of a checkpoint by its `model_type`, or a refusal that says why."""
    if model_type in _RECURRENT:
        raise UserError(
            f"{checkpoint} is a {model_type} model: it keeps recurrent or rotating state, which"
            " cannot be rolled back when a draft is rejected. Supported: " + _listed() + ".",
            code="unsupported_architecture",
            param="--target",
        )
    if model_type not in SUPPORTED:
        raise UserError(
            f"{checkpoint} is a {model_type or 'model of unknown type'}, which is not supported."
            f" Supported: {_listed()}.",
            code="unsupported_architecture",
            param="--target",
        )
    return SUPPORTED[model_type]


def check_config(config: Any, checkpoint: str) -> None:
    """Refuse variants of a supported architecture that the graph cannot express."""
    activation = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
    if activation not in _ACTIVATIONS:
        raise _variant(checkpoint, f"activation {activation!r}")
    rotary = _rotary_width(config)
    if rotary % _ROTARY_MULTIPLE:
        raise _variant(
            checkpoint, f"rotary embedding of {rotary} dimensions (not {_ROTARY_MULTIPLE}n)"
        )
    if getattr(config, "quantization_config", None):
        raise _variant(checkpoint, "weights that are already quantised")
    if getattr(config, "use_bidirectional_attention", False):
        raise _variant(checkpoint, "bidirectional attention")


def _rotary_width(config: Any) -> int:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(head_dim * getattr(config, "partial_rotary_factor", 1.0))


def max_context(config: Any) -> int:
    """Positions the rotary tables can cover without changing with the length of the text."""
    scaling = getattr(config, "rope_scaling", None) or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "longrope":
        original = getattr(config, "original_max_position_embeddings", None)
        return int(original or config.max_position_embeddings)
    return int(config.max_position_embeddings)


def _variant(checkpoint: str, what: str) -> UserError:
    return UserError(
        f"{checkpoint} uses {what}, which is not supported.",
        code="unsupported_architecture",
        param="--target",
    )


def _listed() -> str:
    return ", ".join(f"{known.name} ({kind})" for kind, known in SUPPORTED.items())
