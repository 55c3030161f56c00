"""Weight types of a package: `quantize` turns the canonical fp32 graph into the stored one."""

from __future__ import annotations

from export.quantization.context import CalibrationContext
from export.quantization.weight_types import quantize

__all__ = ["CalibrationContext", "quantize"]
