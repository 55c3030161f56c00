"""Is the exported graph the checkpoint's model? Measured at every export, against torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from export.rows import FEATURES
from export.runner import GraphRunner, RowStep
from models.errors import UserError

TOLERANCE = 1e-3
_TEXTS = (
    "The lighthouse keeper wrote in his journal every evening, and on the last page he wrote: "
    "the lamp is lit, the sea is calm, and nobody is coming. The next keeper read it twice.",
    "def median(values):\n    ordered = sorted(values)\n    middle = len(ordered) // 2\n"
    "    if len(ordered) % 2:\n        return ordered[middle]\n",
    "Über 1.250 Gäste kamen; 3 + 7 = 10. 東京は雨です。 What would you like to know?",
)
_MOST_TOKENS = 160
_CHUNKS = (2, 5, 3, 16)
_FEATURES = tuple(f"{name}.0" for name in FEATURES)


@dataclass(frozen=True, slots=True)
class Reference:
    """Prompts and torch's logits for every one of their tokens; features where they are wanted."""

    prompts: tuple[tuple[int, ...], ...]
    logits: tuple[NDArray[np.float32], ...]
    features: tuple[Mapping[str, NDArray[np.float32]], ...] = ()

    @property
    def tolerance(self) -> float:
        """1e-3 in units of the logits' own spread, and of 1 where that is smaller."""
        return TOLERANCE * max(1.0, float(np.concatenate(self.logits).std()))


def reference_logits(model: Any, encode: Any, context_length: int) -> Reference:
    most = min(_MOST_TOKENS, context_length)
    prompts = tuple(tuple(encode(text)[:most]) for text in _TEXTS)
    with torch.no_grad():
        logits = tuple(model(torch.tensor([ids])).logits[0].float().numpy() for ids in prompts)
    return Reference(prompts, logits)


def check_parity(
    path: Path, reference: Reference, *, device: str = "cpu", slack: float = 1.0
) -> dict[str, float]:
    """Compare the graph for R = 1 with torch, whole and in chunks; fail beyond the tolerance."""
    whole, chunked, agreed, tokens = 0.0, 0.0, 0, 0
    capacity = max(len(ids) for ids in reference.prompts) + 8
    runner = GraphRunner(path, capacity=capacity, device=device)
    for ids, expected in zip(reference.prompts, reference.logits, strict=True):
        one = runner.run([RowStep(ids)])["logits"]
        many = run_in_chunks(runner, ids)
        whole = max(whole, float(np.abs(one - expected).max()))
        chunked = max(chunked, float(np.abs(many - expected).max()))
        agreed += int((one.argmax(-1) == expected.argmax(-1)).sum())
        tokens += len(ids)
    figures = {
        "max_abs": whole,
        "max_abs_chunked": chunked,
        "argmax_agreement": agreed / tokens,
        "tokens": float(tokens),
        "tolerance": slack * reference.tolerance,
    }
    if not max(whole, chunked) <= slack * reference.tolerance:
        raise failed("the graph differs from torch", figures)
    return figures


def run_in_chunks(runner: GraphRunner, ids: Sequence[int]) -> NDArray[np.float32]:
    """All logits of one row, fed in chunks of changing width; never one token alone."""
    return np.asarray(outputs_in_chunks(runner, ids)["logits"], np.float32)


def outputs_in_chunks(runner: GraphRunner, ids: Sequence[int]) -> dict[str, NDArray[Any]]:
    """The same of every output."""
    parts: list[dict[str, NDArray[Any]]] = []
    past = 0
    while past < len(ids):
        width = _CHUNKS[len(parts) % len(_CHUNKS)]
        if len(ids) - past - width < 2:
            width = len(ids) - past
        parts.append(runner.run([RowStep(ids[past : past + width], past)]))
        past += width
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_rows(
    single: Path,
    several: Mapping[int, Path],
    reference: Reference,
    *,
    device: str = "cpu",
    slack: float = 1.0,
) -> dict[str, float]:
    """Compare each graph for R rows with the R = 1 graph, on rows of different width and past."""
    # Even widths: the attention kernel computes a lone last token of its blocks differently.
    prompts = [ids[: len(ids) // 2 * 2] for ids in reference.prompts]
    capacity = max(map(len, prompts)) + 8
    runner = GraphRunner(single, capacity=capacity, device=device)
    plain = [runner.run([RowStep(ids)]) for ids in prompts]
    worst, off = 0.0, 0.0
    for rows, path in several.items():
        packed = GraphRunner(path, capacity=capacity, device=device)
        turns = [row % len(prompts) for row in range(rows)]
        halves = [len(prompts[turn]) // 4 * 2 - 2 * row for row, turn in enumerate(turns)]
        parts = [(prompts[turn], half) for turn, half in zip(turns, halves, strict=True)]
        one = packed.run([RowStep(ids[:half]) for ids, half in parts])
        two = packed.run([RowStep(ids[half:], half) for ids, half in parts])
        early = [_cut(plain[turn], 0, half) for turn, half in zip(turns, halves, strict=True)]
        late = [_cut(plain[turn], half, None) for turn, half in zip(turns, halves, strict=True)]
        for found, expected in ((one, early), (two, late)):
            logits = np.concatenate([row["logits"] for row in expected])
            worst = max(worst, float(np.abs(found["logits"] - logits).max()))
            off = max(off, _features_off(found, expected))
    figures = {"rows_max_abs": worst}
    if any(name in plain[0] for name in _FEATURES):
        figures["rows_features_max_rel"] = off
    if not (worst <= slack * reference.tolerance and off <= slack * TOLERANCE):
        raise failed("a graph for several rows differs from the graph for one", figures)
    return figures


def _cut(outputs: Mapping[str, NDArray[Any]], begin: int, end: int | None) -> dict[str, Any]:
    return {name: values[begin:end] for name, values in outputs.items()}


def _features_off(found: Mapping[str, Any], expected: Sequence[Mapping[str, Any]]) -> float:
    """The largest difference of any row's features, in units of their spread."""
    off = 0.0
    for row, values in enumerate(expected):
        for name in (name for name in _FEATURES if name in values):
            own = found[name.replace(".0", f".{row}")].astype(np.float32)
            wanted = values[name].astype(np.float32)
            unit = np.abs(wanted) + wanted.std()
            off = max(off, float((np.abs(own - wanted) / unit).max()))
    return off


def failed(what: str, figures: Mapping[str, float]) -> UserError:
    listed = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
    shown = f" ({listed})" if listed else ""
    return UserError(f"parity failed: {what}{shown}.", code="parity_failed", param="--target")
