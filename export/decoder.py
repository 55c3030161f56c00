"""The decoder as optimum exports it: its inputs, its outputs, and the model patched for tracing.

The traced model is the checkpoint's own transformers model. Its attention function, RMSNorms,
activations and rotary embedding are replaced for the time of the trace by the operators of
`export.kernels`; everything else is traced as it is.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from optimum.exporters.onnx import export
from optimum.exporters.onnx.base import OnnxConfig
from optimum.exporters.onnx.model_patcher import ModelPatcher
from optimum.utils import NormalizedTextConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from export.architectures import Architecture
from export.kernels import gelu_tanh, group_query_attention, rms_norm, silu
from models.memory import PAD_TOKENS

ATTENTION = "outpace_group_query"
TOP_K = 64
_TRACED_TOKENS = 5
_TRACED_CAPACITY = 16
_TRACE_OPSET = 18
_SILU = ("SiLU", "SiLUActivation")
_GELU_TANH = ("GELUTanh", "PytorchGELUTanh")


def trace_decoder(
    model: Any, architecture: Architecture, context_length: int, directory: Path
) -> onnx.ModelProto:
    """The R = 1 graph as traced, not yet canonical. `directory` receives the trace."""
    path = directory / "traced.onnx"
    config = DecoderConfig(model.config, architecture, context_length)
    export(model, config, path, opset=_TRACE_OPSET, disable_dynamic_axes_fix=True)
    traced = onnx.load(str(path))
    # Tracing leaves their number open.
    logits = next(output for output in traced.graph.output if output.name == "logits")
    vocab_size = int(model.get_output_embeddings().weight.shape[0])
    logits.type.tensor_type.shape.dim[1].dim_value = vocab_size
    return traced


class DecoderConfig(OnnxConfig):  # type: ignore[misc]
    """Inputs, outputs and example inputs of the R = 1 graph."""

    NORMALIZED_CONFIG_CLASS = NormalizedTextConfig

    def __init__(self, config: Any, architecture: Architecture, context_length: int) -> None:
        super().__init__(config, task="text-generation")
        self.architecture = architecture
        self.context_length = context_length

    @property
    def inputs(self) -> dict[str, dict[int, str]]:
        tokens = {1: "tokens"}
        return {
            "input_ids": tokens,
            "logits_index": {0: "wanted"},
            "position_ids": tokens,
            "seqlens_k.0": {},
            "total_length.0": {},
            **self._buffers("past"),
        }

    @property
    def outputs(self) -> dict[str, dict[int, str]]:
        wanted = {0: "wanted"}
        return {
            "logits": wanted,
            "top_values": wanted,
            "top_ids": wanted,
            "logsumexp": wanted,
            **self._buffers("present"),
        }

    def _buffers(self, prefix: str) -> dict[str, dict[int, str]]:
        return {
            f"{prefix}.{layer}.0.{part}": {2: "capacity.0"}
            for layer in range(self._config.num_hidden_layers)
            for part in ("key", "value")
        }

    def generate_dummy_inputs(self, framework: str = "pt", **kwargs: Any) -> dict[str, Any]:
        shape = (1, self._config.num_key_value_heads, _TRACED_CAPACITY, head_dim(self._config))
        positions = torch.arange(_TRACED_TOKENS)
        return {
            "input_ids": positions[None] + 1,
            "logits_index": positions[1:4],
            "position_ids": positions[None],
            "seqlens_k": torch.tensor([_TRACED_TOKENS - 1], dtype=torch.int32),
            "total_length": torch.tensor(_TRACED_TOKENS, dtype=torch.int32),
            "past": [torch.zeros(shape) for _ in range(2 * self._config.num_hidden_layers)],
        }

    def patch_model_for_export(
        self, model: Any, model_kwargs: dict[str, Any] | None = None
    ) -> ModelPatcher:
        return DecoderPatcher(self, model, model_kwargs)


class DecoderPatcher(ModelPatcher):  # type: ignore[misc]
    """Puts the traced operators into the model, and takes them out again."""

    def __init__(
        self, config: DecoderConfig, model: Any, model_kwargs: dict[str, Any] | None = None
    ) -> None:
        super().__init__(config, model, model_kwargs)
        self.architecture = config.architecture
        self.trace = Trace(model, self.orig_forward, config.context_length)
        self.patched_forward = self.trace.forward
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        super().__enter__()
        model = self._model
        ALL_ATTENTION_FUNCTIONS.register(ATTENTION, self.trace.attention)
        ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, _no_mask)
        before = model.config._attn_implementation
        model.set_attn_implementation(ATTENTION)
        self._undo.append(lambda: model.set_attn_implementation(before))
        self._replace(importlib.import_module(type(model).__module__))

    def __exit__(self, *exception: Any) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        super().__exit__(*exception)

    def _replace(self, modeling: Any) -> None:
        original = modeling.apply_rotary_pos_emb
        modeling.apply_rotary_pos_emb = self.trace.note_rotary
        self._undo.append(functools.partial(setattr, modeling, "apply_rotary_pos_emb", original))
        for module in self._model.modules():
            forward = self._traced_forward(module)
            if forward is not None:
                module.forward = forward
                self._undo.append(functools.partial(delattr, module, "forward"))

    def _traced_forward(self, module: Any) -> Callable[..., Any] | None:
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            offset = self.architecture.norm_offset
            weight = (module.weight + offset).detach() if offset else module.weight
            epsilon = getattr(module, "variance_epsilon", None) or module.eps
            return lambda x: rms_norm(x, weight, epsilon)
        if kind.endswith("RotaryEmbedding"):
            tables = self.trace.rotary_tables(module)
            return lambda *_, **__: tables
        if kind in _SILU:
            return silu
        if kind in _GELU_TANH:
            return gelu_tanh
        return None


class Trace:
    """What flows through one trace beside the model's own tensors."""

    def __init__(self, model: Any, original: Callable[..., Any], context_length: int) -> None:
        self._model = model
        self._original = original
        self._context_length = context_length
        self._inputs: dict[str, torch.Tensor] = {}
        self._past: Sequence[torch.Tensor] = ()
        self._present: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._rotary: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(
        self,
        input_ids: torch.Tensor,
        logits_index: torch.Tensor,
        position_ids: torch.Tensor,
        seqlens_k: torch.Tensor,
        total_length: torch.Tensor,
        past: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, ...]:
        self._inputs = {
            "position_ids": position_ids,
            "seqlens_k": seqlens_k,
            "total_length": total_length,
        }
        self._past = past
        output = self._original(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=logits_index,
        )
        vocab_size = int(self._model.get_output_embeddings().weight.shape[0])
        logits = output.logits.reshape(-1, vocab_size)
        values, ids = torch.topk(logits, min(TOP_K, vocab_size))
        # ReduceLogSumExp runs on one thread; a log-softmax runs on all of them.
        logsumexp = (logits[:, :1] - torch.log_softmax(logits, -1)[:, :1]).reshape(-1)
        present = [part for layer in sorted(self._present) for part in self._present[layer]]
        return (logits, values, ids, logsumexp, *present)

    def attention(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """Attention in transformers' interface; q, k, v are [1, heads, N, head_dim]."""
        config, layer = module.config, module.layer_idx
        heads, kv_heads, width = config.num_attention_heads, key.shape[1], module.head_dim
        rotary, self._rotary = self._rotary, None
        inputs = self._inputs
        output, *present = group_query_attention(
            (_merge_heads(query), _merge_heads(key), _merge_heads(value)),
            (self._past[2 * layer], self._past[2 * layer + 1]),
            (inputs["seqlens_k"], inputs["total_length"]),
            (None, None, None) if rotary is None else (*rotary, inputs["position_ids"]),
            {
                "num_heads": heads,
                "kv_num_heads": int(kv_heads),
                "do_rotary": int(rotary is not None),
                "scale": float(width**-0.5 if scaling is None else scaling),
                "local_window_size": int(sliding_window or -1),
                "softcap": float(softcap or 0.0),
            },
        )
        self._present[layer] = (present[0], present[1])
        return output.reshape(1, -1, heads, width), None

    def note_rotary(
        self, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stands in for `apply_rotary_pos_emb`: the attention node that follows rotates."""
        self._rotary = (cos, sin)
        return query, key

    def rotary_tables(self, module: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of every position as GQA reads them: [context + pad, rotary_dim / 2].

        The pad, which nothing reads, repeats the last position: some scalings change with the
        length of the text.
        """
        positions = torch.arange(self._context_length)[None]
        cos, sin = module(torch.zeros(1), positions)
        half = cos.shape[-1] // 2
        cos, sin = (
            torch.cat([table[0, :, :half], table[0, -1:, :half].expand(PAD_TOKENS, -1)])
            for table in (cos, sin)
        )
        return cos.contiguous(), sin.contiguous()


def head_dim(config: Any) -> int:
    declared = getattr(config, "head_dim", None)
    return int(declared or config.hidden_size // config.num_attention_heads)


def _merge_heads(x: torch.Tensor) -> torch.Tensor:
    # The width as a plain number: a traced one would become shape arithmetic in the graph.
    return x.transpose(1, 2).reshape(1, -1, int(x.shape[1]) * int(x.shape[3]))


def _no_mask(*_: Any, **__: Any) -> None:
    return None
