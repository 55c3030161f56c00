"""The entry: one canonical fp32 graph in, one graph of the wanted weight type out."""

from __future__ import annotations

import onnx

from export.quantization.answers import Answer, Sampling, prompt_ids, write_answers
from export.quantization.context import CalibrationContext
from export.quantization.nbits import to_nbits
from export.quantization.prompts import CALIBRATION, HELD_OUT
from export.quantization.quality import (
    Reference,
    measure_quality,
    reference_of,
    require_quality,
)
from export.quantization.scratch import GraphOnDisk, on_disk
from export.quantization.w8a8 import to_w8a8
from models.errors import UserError
from models.processor import integer_form

_ROWS = 8
_CALIBRATING = Sampling(max_tokens=128, temperature=0.8)
_JUDGING = Sampling(max_tokens=80)
_HEADROOM = 8


def quantize(
    model: onnx.ModelProto, weight_type: str, context: CalibrationContext
) -> tuple[onnx.ModelProto, dict[str, float], str | None]:
    """Return (graph, quality figures, integer form) for `weight_type`. `model` is left as it is.

    Quality is measured against `model` on answers the model writes itself, to prompts that were
    not calibrated on: `agreement`, `kl_mean`, `kl_p99`, `tokens`. The integer form is `u8u8` or
    `u8s8` for w8a8 and None for other weight types. Raises `UserError` (`quality_too_low`) where
    w8a8 is too far from the checkpoint; other weight types are only measured.
    """
    if weight_type == "fp32":
        return model, {}, None
    with on_disk(model) as plain:
        _say(context, "writing text to be judged by")
        reference = reference_of(plain, _write(plain, HELD_OUT, _JUDGING, context))
        if weight_type == "w8a8":
            _say(context, "writing text to calibrate on")
            calibration = _write(plain, CALIBRATION, _CALIBRATING, context)
    if weight_type == "w8a8":
        form = integer_form()
        _say(context, "rotating, rounding")
        stored = to_w8a8(model, form, [answer.all_ids for answer in calibration], context)
        figures = _measured(stored, reference)
        require_quality(figures)
        return stored, figures, form
    if weight_type == "int8":
        stored = to_nbits(model, 8, symmetric=True)
        return stored, _measured(stored, reference), None
    if weight_type == "int4":
        return *_best_int4(model, reference), None
    raise UserError(
        f"unknown weight type {weight_type!r}; known are w8a8, int8, int4, fp32.",
        code="invalid_option",
        param="--dtype",
    )


def _best_int4(
    model: onnx.ModelProto, reference: Reference
) -> tuple[onnx.ModelProto, dict[str, float]]:
    """Symmetric or asymmetric: whichever is closer to the checkpoint."""
    candidates = [to_nbits(model, 4, symmetric=symmetric) for symmetric in (False, True)]
    measured = [(candidate, _measured(candidate, reference)) for candidate in candidates]
    return min(measured, key=lambda pair: pair[1]["kl_mean"])


def _measured(model: onnx.ModelProto, reference: Reference) -> dict[str, float]:
    with on_disk(model) as stored:
        return measure_quality(stored, reference)


def _write(
    graph: GraphOnDisk,
    questions: tuple[str, ...],
    sampling: Sampling,
    context: CalibrationContext,
) -> list[Answer]:
    prompts = prompt_ids(context, questions)
    capacity = max(map(len, prompts)) + sampling.max_tokens + _HEADROOM
    return write_answers(graph.runner(_ROWS, capacity), prompts, sampling, context)


def _say(context: CalibrationContext, text: str) -> None:
    if context.report is not None:
        context.report(text)
