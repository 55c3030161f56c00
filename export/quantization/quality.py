"""How far a quantised graph is from the fp32 graph, on answers the fp32 graph wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.quantization.answers import Answer
from export.quantization.scratch import GraphOnDisk
from export.runner import RowStep
from models.errors import UserError

LEAST_AGREEMENT = 0.95
MOST_KL = 0.015
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reference:
    """Greedy answers of the fp32 graph and, for each, its log-probabilities [ids, vocabulary]."""

    answers: tuple[Answer, ...]
    log_probabilities: tuple[Array, ...]


def reference_of(graph: GraphOnDisk, answers: Sequence[Answer]) -> Reference:
    return Reference(tuple(answers), tuple(log_probabilities(graph, answers)))


def log_probabilities(graph: GraphOnDisk, answers: Sequence[Answer]) -> list[Array]:
    runner = graph.runner(1, max(len(answer.all_ids) for answer in answers))
    results = []
    for answer in answers:
        logits = runner.run([RowStep(answer.all_ids)], answer.predicting)["logits"]
        shifted = logits.astype(np.float32) - logits.max(-1, keepdims=True)
        results.append(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
    return results


def measure_quality(graph: GraphOnDisk, reference: Reference) -> dict[str, float]:
    """`agreement` of the most likely token, `kl_mean` and `kl_p99` of KL(fp32 || graph)."""
    agreed: list[NDArray[np.bool_]] = []
    divergences: list[Array] = []
    measured = log_probabilities(graph, reference.answers)
    for expected, actual in zip(reference.log_probabilities, measured, strict=True):
        agreed.append(expected.argmax(-1) == actual.argmax(-1))
        divergences.append((np.exp(expected) * (expected - actual)).sum(-1))
    divergence = np.concatenate(divergences)
    return {
        "agreement": float(np.concatenate(agreed).mean()),
        "kl_mean": float(divergence.mean()),
        "kl_p99": float(np.quantile(divergence, 0.99)),
        "tokens": float(len(divergence)),
    }


def shown(figures: Mapping[str, float]) -> str:
    """For a person: the figures, and what they say."""
    if not figures:
        return "none measured"
    listed = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    return (
        f"{listed} (at {figures['agreement']:.1%} of {figures['tokens']:.0f} places the most likely"
        " token is that of the fp32 model)"
    )


def require_quality(figures: dict[str, float]) -> None:
    """Refuse w8a8 weights that say something else than the checkpoint too often."""
    agreement, divergence = figures["agreement"], figures["kl_mean"]
    if agreement >= LEAST_AGREEMENT and divergence <= MOST_KL:
        return
    raise UserError(
        f"w8a8 loses too much of this checkpoint: the most likely token agrees with fp32 in"
        f" {agreement:.1%} of cases (at least {LEAST_AGREEMENT:.0%} wanted), mean KL is"
        f" {divergence:.4f} (at most {MOST_KL}). Export with --dtype int8 instead.",
        code="quality_too_low",
        param="--dtype",
    )
