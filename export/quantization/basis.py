"""The basis of a graph's residual stream, noted in the graph itself.

Quantisation may keep the stream rotated, and fold the final norm's weight into the head. Drafters
read features in the checkpoint's own basis: the note holds what leads back there.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from export.quantization.rotation import Matrix, rotation

_SEED, _FINAL_NORM = "outpace.stream_rotation", "outpace.final_norm"


@dataclass(frozen=True, slots=True)
class Basis:
    """The stream is multiplied by `rotation(hidden, seed)`; `final_norm` [hidden] is folded."""

    seed: int
    final_norm: NDArray[np.float32]

    def stream_back(self) -> Matrix:
        """[hidden, hidden]: from the rotated stream to the checkpoint's."""
        return rotation(len(self.final_norm), self.seed).T

    def hidden_back(self) -> Matrix:
        """[hidden, hidden]: from the final norm without its weight to the last hidden state."""
        return np.asarray(self.stream_back() * self.final_norm.astype(np.float64))


def note_basis(model: onnx.ModelProto, basis: Basis) -> None:
    weights = base64.b64encode(basis.final_norm.astype("<f4").tobytes()).decode()
    noted = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(model, {**noted, _SEED: str(basis.seed), _FINAL_NORM: weights})


def noted_basis(model: onnx.ModelProto) -> Basis | None:
    """None: the stream is in the checkpoint's basis."""
    noted = {entry.key: entry.value for entry in model.metadata_props}
    if _SEED not in noted:
        return None
    weights = np.frombuffer(base64.b64decode(noted[_FINAL_NORM]), "<f4")
    return Basis(int(noted[_SEED]), weights.astype(np.float32))
