"""Builds packages: sources, the decoder through optimum, quantisation, parity checks."""

import models  # noqa: F401 (before ONNX Runtime is imported, which it tells to send nothing)
