"""Are the features that graphs give out the checkpoint's? Against torch's own hidden states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from export.features import HIDDEN, TAPS, Features
from export.parity import TOLERANCE, Reference, failed, outputs_in_chunks
from export.runner import GraphRunner, RowStep

ROUNDED_MEAN = 0.7
"""What rounded weights may change, of the mean magnitude. Measured are 0.03 (w8a8) to 0.3 (int4);
another layer or another basis differs by 1 and more."""
Array = NDArray[np.float32]


def torch_features(model: Any, ids: tuple[int, ...], features: Features) -> dict[str, Array]:
    """[len(ids), width] of each of `features`, of a transformers model."""
    decoder, behind = model.get_decoder(), list[torch.Tensor]()

    def keep(_module: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        behind.append(arguments[0])

    hook = decoder.norm.register_forward_pre_hook(keep)
    try:
        with torch.no_grad():
            output = decoder(torch.tensor([ids]), output_hidden_states=True)
    finally:
        hook.remove()
    # Whether the last that transformers lists is behind the norm depends on who is asked.
    streams = [*output.hidden_states[:-1], behind[0]]
    found = {}
    if features.hidden:
        found[HIDDEN] = output.last_hidden_state[0].float().numpy()
    if features.tap_layers:
        taps = torch.cat([streams[layer][0] for layer in features.tap_layers], -1)
        found[TAPS] = taps.float().numpy()
    return found


def with_features(reference: Reference, model: Any, features: Features) -> Reference:
    """`reference` with torch's features of its prompts."""
    found = tuple(torch_features(model, ids, features) for ids in reference.prompts)
    return Reference(reference.prompts, reference.logits, found)


def check_features(
    path: Path, reference: Reference, *, device: str = "cpu", rounded: bool = False
) -> dict[str, float]:
    """Compare the graph for one row, whole and in chunks, with the reference's features.

    `rounded` weights are held to their mean difference only.
    """
    capacity = max(map(len, reference.prompts)) + 8
    runner = GraphRunner(path, capacity=capacity, device=device)
    pairs: dict[str, list[tuple[Array, Array]]] = {}
    for ids, expected in zip(reference.prompts, reference.features, strict=True):
        for outputs in (runner.run([RowStep(ids)]), outputs_in_chunks(runner, ids)):
            for name, values in expected.items():
                found = outputs[f"{name}.0"].astype(np.float32)
                pairs.setdefault(name, []).append((found, values))
    difference = mean_difference if rounded else largest_difference
    figures = {
        f"{name}_{'mean' if rounded else 'max'}_rel": max(difference(*pair) for pair in several)
        for name, several in pairs.items()
    }
    if not all(value <= (ROUNDED_MEAN if rounded else TOLERANCE) for value in figures.values()):
        raise failed("the features of the graph differ from torch", figures)
    return figures


def largest_difference(found: Array, expected: Array) -> float:
    """Of any value, in units of its own magnitude and the whole's spread."""
    unit = np.abs(expected) + expected.std()
    return float((np.abs(found - expected) / unit).max())


def mean_difference(found: Array, expected: Array) -> float:
    """In units of the mean magnitude."""
    return float(np.abs(found - expected).mean() / np.abs(expected).mean())
