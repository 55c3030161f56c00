"""The entry: one canonical fp32 graph in, one graph of the wanted weight type out."""

from __future__ import annotations

import onnx

from export.quantization.context import CalibrationContext


def quantize(
    model: onnx.ModelProto, weight_type: str, context: CalibrationContext
) -> tuple[onnx.ModelProto, dict[str, float], str | None]:
    """Return (graph, quality figures, integer form) for `weight_type`.

    Quality is measured against `model` on answers the model writes itself, to prompts that were
    not calibrated on: `agreement`, `kl_mean`, `kl_p99`, `tokens`. The integer form is `u8u8` or
    `u8s8` for w8a8 and None for other weight types.
    """
    if weight_type == "fp32":
        return model, {}, None
    raise NotImplementedError(weight_type)
