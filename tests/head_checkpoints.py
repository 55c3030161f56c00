"""Small random draft heads, written by hand in the layouts that people publish."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from export.heads.block import BlockShape
from export.heads.facts import TargetFacts

HIDDEN, VOCABULARY, LAYERS, CONTEXT = 64, 96, 8, 64
HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 4, 2, 16, 80
DRAFT_IDS = (3, 4, 9, 17, 18, 40, 41, 60, 77, 95)
_SIZES = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": INTERMEDIATE,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0,
    "hidden_act": "silu",
}
CONFIG: dict[str, Any] = {**_SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": 128}


@dataclass
class Published:
    """What is in a head's directory: its config, its tensors, the name of their file."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    file: str = "model.safetensors"

    def save(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        if self.file.endswith(".safetensors"):
            save_file({k: v.contiguous() for k, v in self.tensors.items()}, directory / self.file)
        else:
            torch.save(self.tensors, directory / self.file)
        return directory


def make_facts(**changes: Any) -> TargetFacts:
    """A target of random embeddings and LM head, without a model behind them."""
    generator = torch.Generator().manual_seed(5)
    given: dict[str, Any] = {
        "name": "tiny",
        "sha256": "5" * 64,
        "hidden": HIDDEN,
        "layers": LAYERS,
        "vocab_size": VOCABULARY,
        "context": CONTEXT,
        "block": BlockShape(HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE),
        "rope": {"rope_theta": 5000.0},
        "embeddings": torch.randn(VOCABULARY, HIDDEN, generator=generator).half().float(),
        "lm_head": torch.randn(VOCABULARY, HIDDEN, generator=generator).half().float(),
        "tokenizer": make_tokenizer(),
        "directory": Path("/nowhere/tiny"),
    }
    return TargetFacts(**(given | changes))


def make_tokenizer(first: str = "token0") -> Tokenizer:
    """Words of its own for every id."""
    words = [first, *(f"token{index}" for index in range(1, VOCABULARY))]
    return Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token=first))


class Random:
    """Seeded tensors that fp16 holds exactly; nothing is 0 or 1, which would hide a mistake."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def linear(
        self, name: str, rows: int, columns: int, *, bias: bool = False
    ) -> dict[str, Tensor]:
        tensors = {f"{name}.weight": self._values(rows, columns) * columns**-0.5}
        if bias:
            tensors[f"{name}.bias"] = 0.3 * self._values(rows)
        return {key: value.half().float() for key, value in tensors.items()}

    def norm(self, name: str, width: int) -> dict[str, Tensor]:
        return {f"{name}.weight": (1 + 0.3 * self._values(width)).half().float()}

    def rows(self, name: str, count: int, width: int) -> dict[str, Tensor]:
        return {f"{name}.weight": self._values(count, width).half().float()}

    def block(
        self,
        prefix: str,
        *,
        width: int = HIDDEN,
        head_dim: int = HEAD_DIM,
        input_norm: bool = True,
        qkv_bias: bool = False,
        qk_norm: bool = False,
    ) -> dict[str, Tensor]:
        """A Llama layer; `width` is what q, k and v read."""
        tensors: dict[str, Tensor] = {}
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            name = f"{prefix}self_attn.{part}_proj"
            tensors |= self.linear(name, heads * head_dim, width, bias=qkv_bias)
        tensors |= self.linear(f"{prefix}self_attn.o_proj", HIDDEN, HEADS * head_dim)
        for part in ("q", "k") if qk_norm else ():
            tensors |= self.norm(f"{prefix}self_attn.{part}_norm", head_dim)
        for part in ("gate", "up"):
            tensors |= self.linear(f"{prefix}mlp.{part}_proj", INTERMEDIATE, HIDDEN)
        tensors |= self.linear(f"{prefix}mlp.down_proj", HIDDEN, INTERMEDIATE)
        tensors |= self.norm(f"{prefix}post_attention_layernorm", HIDDEN)
        return tensors | (self.norm(f"{prefix}input_layernorm", HIDDEN) if input_norm else {})

    def _values(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator)


def eagle3(
    prefix: str = "midlayer.", *, lm_head: bool = True, reduced: bool = True, seed: int = 11
) -> Published:
    random = Random(seed)
    ids = torch.tensor(DRAFT_IDS if reduced else range(VOCABULARY))
    tensors = {
        **random.linear("fc", HIDDEN, 3 * HIDDEN),
        **random.block(prefix, width=2 * HIDDEN),
        **random.norm(f"{prefix}hidden_norm", HIDDEN),
        **random.norm("norm", HIDDEN),
    }
    if lm_head:
        tensors |= random.linear("lm_head", len(ids), HIDDEN)
    if reduced:
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.isin(torch.arange(VOCABULARY), ids)
    return Published({**CONFIG, "num_hidden_layers": 1, "draft_vocab_size": len(ids)}, tensors)


def eagle3_pickled() -> Published:
    published = eagle3()
    published.file = "pytorch_model.bin"
    return published


def eagle3_named_layers() -> Published:
    """With layers of its own choice, in the field of SpecForge: outputs of layers 0, 3 and 6."""
    published = eagle3(reduced=False)
    published.config["eagle_config"] = {
        "use_aux_hidden_state": True,
        "eagle_aux_hidden_state_layer_ids": [0, 3, 6],
    }
    published.tensors |= Random(12).rows("embed_tokens", VOCABULARY, HIDDEN)
    return published


def eagle3_speculators(*, variants: bool = False) -> Published:
    published = eagle3("layers.0.")
    layer = {**published.config, "model_type": "llama"}
    config = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": layer.pop("draft_vocab_size"),
        "norm_before_residual": variants,
        "eagle_aux_hidden_state_layer_ids": [1, 4, 8],
        "transformer_layer_config": layer,
    }
    random, tensors = Random(13), published.tensors
    tensors |= random.rows("embed_tokens", VOCABULARY, HIDDEN)
    tensors |= random.norm("verifier_norm", HIDDEN)
    if variants:
        config["norm_before_fc"] = True
        layer["num_hidden_layers"] = 2
        tensors |= random.norm("input_norm", 3 * HIDDEN)
        tensors |= random.block("layers.1.", qk_norm=True)
        for part in ("q", "k"):
            tensors |= random.norm(f"layers.0.self_attn.{part}_norm", HEAD_DIM)
    return Published(config, tensors)


def eagle(*, bias: bool = True, embeddings: bool = False, layers: int = 1) -> Published:
    random = Random(21)
    tensors = random.linear("fc", HIDDEN, 2 * HIDDEN, bias=bias)
    for layer in range(layers):
        tensors |= random.block(f"layers.{layer}.", input_norm=layer > 0)
    if embeddings:
        tensors |= random.rows("embed_tokens", VOCABULARY, HIDDEN)
    return Published({**CONFIG, "num_hidden_layers": layers, "bias": bias}, tensors)


def eagle_speculators(*, norms: bool = False) -> Published:
    random = Random(22)
    tensors = random.linear("fusion_fc", HIDDEN, 2 * HIDDEN, bias=norms)
    tensors |= random.block("transformer.", input_norm=norms)
    if norms:
        tensors |= random.norm("embedding_layernorm", HIDDEN)
        tensors |= random.norm("pre_lm_head_layernorm", HIDDEN)
        tensors |= random.linear("lm_head", VOCABULARY, HIDDEN)
    config = {
        "speculators_model_type": "eagle",
        "layernorms": norms,
        "fusion_bias": norms,
        "transformer_layer_config": CONFIG,
    }
    return Published(config, tensors)


def medusa(*, own_head: bool = True, layers: int = 1, file: str = "medusa_lm_head.pt") -> Published:
    random = Random(31)
    tensors: dict[str, Tensor] = {}
    for head in range(3):
        for layer in range(layers):
            tensors |= random.linear(f"{head}.{layer}.linear", HIDDEN, HIDDEN, bias=True)
        if own_head:
            tensors |= random.linear(f"{head}.{layers}", VOCABULARY, HIDDEN)
    config = {
        "medusa_num_heads": 3,
        "medusa_num_layers": layers,
        "base_model_name_or_path": "somebody/tiny",
    }
    return Published(config, tensors, file)


def deepseek(*, glm: bool = False) -> Published:
    """A module behind the layers of its target, as in DeepSeek-V3; or as in GLM-4.x."""
    random, prefix = Random(41), f"model.layers.{LAYERS}."
    head_dim = 32 if glm else HEAD_DIM
    tensors = {
        **random.norm(f"{prefix}enorm", HIDDEN),
        **random.norm(f"{prefix}hnorm", HIDDEN),
        **random.linear(f"{prefix}eh_proj", HIDDEN, 2 * HIDDEN),
        **random.norm(f"{prefix}shared_head.norm", HIDDEN),
        **random.linear(f"{prefix}shared_head.head", VOCABULARY, HIDDEN),
        **random.rows(f"{prefix}embed_tokens", VOCABULARY, HIDDEN),
        **random.block(prefix, head_dim=head_dim, qkv_bias=glm, qk_norm=glm),
    }
    # The target's own tensors lie beside the module's.
    tensors |= random.norm("model.norm", HIDDEN) | random.block("model.layers.0.")
    config = {**CONFIG, "num_hidden_layers": LAYERS, "num_nextn_predict_layers": 1}
    return Published(
        config | ({"head_dim": 32, "partial_rotary_factor": 0.5} if glm else {}), tensors
    )


def mimo(*, modules: int = 1) -> Published:
    random = Random(42)
    tensors: dict[str, Tensor] = random.norm("model.norm", HIDDEN)
    for module in range(modules):
        prefix = f"model.mtp_layers.{module}."
        tensors |= random.norm(f"{prefix}token_layernorm", HIDDEN)
        tensors |= random.norm(f"{prefix}hidden_layernorm", HIDDEN)
        tensors |= random.linear(f"{prefix}input_proj", HIDDEN, 2 * HIDDEN)
        tensors |= random.norm(f"{prefix}final_layernorm", HIDDEN)
        tensors |= random.block(prefix, qkv_bias=True)
    return Published({**CONFIG, "num_nextn_predict_layers": modules}, tensors)


STEPPING: Mapping[str, Callable[[], Published]] = {
    "eagle3": eagle3,
    "eagle3-pickled": eagle3_pickled,
    "eagle3-numbered": lambda: eagle3("layers.0."),
    "eagle3-without-lm-head": lambda: eagle3(lm_head=False),
    "eagle3-named-layers": eagle3_named_layers,
    "eagle3-speculators": eagle3_speculators,
    "eagle3-speculators-variants": lambda: eagle3_speculators(variants=True),
    "eagle": eagle,
    "eagle-without-bias": lambda: eagle(bias=False, embeddings=True),
    "eagle-two-layers": lambda: eagle(layers=2),
    "eagle-speculators": eagle_speculators,
    "eagle-speculators-norms": lambda: eagle_speculators(norms=True),
    "deepseek": deepseek,
    "glm": lambda: deepseek(glm=True),
    "mimo": mimo,
    "mimo-three-modules": lambda: mimo(modules=3),
}
MEDUSA: Mapping[str, Callable[[], Published]] = {
    "medusa": medusa,
    "medusa-shared": lambda: medusa(own_head=False, file="medusa_lm_head.safetensors"),
    "medusa-two-layers": lambda: medusa(layers=2, file="medusa_lm_head.safetensors"),
}
