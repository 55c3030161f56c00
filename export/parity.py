"""Is the exported graph the checkpoint's model? Measured at every export, against torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True)
class Reference:
    """Prompts and torch's logits for every one of their tokens."""

    prompts: tuple[tuple[int, ...], ...]
    logits: tuple[NDArray[np.float32], ...]

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
    parts, past, turn = [], 0, 0
    while past < len(ids):
        width = _CHUNKS[turn % len(_CHUNKS)]
        if len(ids) - past - width < 2:
            width = len(ids) - past
        parts.append(runner.run([RowStep(ids[past : past + width], past)])["logits"])
        past, turn = past + width, turn + 1
    return np.concatenate(parts).astype(np.float32)


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
    plain = [runner.run([RowStep(ids)])["logits"] for ids in prompts]
    worst = 0.0
    for rows, path in several.items():
        packed = GraphRunner(path, capacity=capacity, device=device)
        turns = [row % len(prompts) for row in range(rows)]
        halves = [len(prompts[turn]) // 4 * 2 - 2 * row for row, turn in enumerate(turns)]
        parts = [(prompts[turn], half) for turn, half in zip(turns, halves, strict=True)]
        one = packed.run([RowStep(ids[:half]) for ids, half in parts])["logits"]
        two = packed.run([RowStep(ids[half:], half) for ids, half in parts])["logits"]
        early = [plain[turn][:half] for turn, half in zip(turns, halves, strict=True)]
        late = [plain[turn][half:] for turn, half in zip(turns, halves, strict=True)]
        worst = max(worst, float(np.abs(one - np.concatenate(early)).max()))
        worst = max(worst, float(np.abs(two - np.concatenate(late)).max()))
    figures = {"rows_max_abs": worst}
    if not worst <= slack * reference.tolerance:
        raise failed("a graph for several rows differs from the graph for one", figures)
    return figures


def failed(what: str, figures: Mapping[str, float]) -> UserError:
    listed = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
    shown = f" ({listed})" if listed else ""
    return UserError(f"parity failed: {what}{shown}.", code="parity_failed", param="--target")
