"""Block-wise weights (`MatMulNBits`) in 8 or 4 bits, activations quantised by the kernel."""

from __future__ import annotations

import logging

import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

BLOCK = 32
_INT8_ACTIVATIONS = 4


def to_nbits(model: onnx.ModelProto, bits: int, *, symmetric: bool) -> onnx.ModelProto:
    work = onnx.ModelProto()
    work.CopyFrom(model)
    config = DefaultWeightOnlyQuantConfig(
        block_size=BLOCK, is_symmetric=symmetric, accuracy_level=_INT8_ACTIVATIONS, bits=bits
    )
    quantizer = MatMulNBitsQuantizer(work, algo_config=config)
    previous = logging.root.manager.disable
    logging.disable(logging.INFO)  # the quantizer logs a line for every layer
    try:
        quantizer.process()
    finally:
        logging.disable(previous)
    result: onnx.ModelProto = quantizer.model.model
    return result
