"""The one graph of Medusa heads: its weights as a device likes them, and running it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from export.heads.step import StepGraph
from export.kept_features import read_features
from export.lowering import lower
from export.runner import checking_session
from models.package import FEATURE_INDEX

_FLOATS = ("top_values", "logsumexp")


def lower_medusa(model: onnx.ModelProto, device: str) -> onnx.ModelProto:
    """As steps are lowered; outputs stay fp32. On a GPU it reads the slot's features in place."""
    lowered = lower(StepGraph(model, None, None), device).model
    if device != "cpu":
        _widen_outputs(lowered)
        return read_features(lowered)
    return lowered


def _widen_outputs(model: onnx.ModelProto) -> None:
    """The half-precision outputs become casts of what made them."""
    narrow = {name: f"{name}/half" for name in _FLOATS}
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [narrow.get(name, name) for name in names]
    for name, inner in narrow.items():
        cast = helper.make_node("Cast", [inner], [name], name=name, to=TensorProto.FLOAT)
        model.graph.node.append(cast)
    for value in model.graph.output:
        if value.name in narrow:
            value.type.tensor_type.elem_type = TensorProto.FLOAT


class MedusaRunner:
    """One session on the graph of Medusa heads."""

    def __init__(self, path: Path, *, device: str = "cpu") -> None:
        self._session = checking_session(path, device)
        half = self._session.get_inputs()[0].type == "tensor(float16)"
        self._kind: Any = np.float16 if half else np.float32
        self._indexed = len(self._session.get_inputs()) > 1

    def draft(self, state: NDArray[np.float32]) -> list[int]:
        """The best token of every head for the last hidden state [hidden]."""
        feeds = {"features": state[None].astype(self._kind)}
        if self._indexed:
            feeds[FEATURE_INDEX] = np.zeros(1, np.int64)
        (ids,) = self._session.run(["top_ids"], feeds)
        return [int(token) for token in ids[:, 0]]
