"""Does an exported drafter propose what it should? Against its torch reference, and as it survives.

The fp32 graph must propose the reference's tokens on every prompt. Where it does not, the two are
told apart by the reference's own logits: only tokens that it finds equal, up to what another order
of sums changes, may change places. The stored graph is rounded: how often it agrees is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.parity import TOLERANCE
from export.quantization.answers import Answer
from models.errors import UserError

STRIDE = 3
Proposer = Callable[[int], Sequence[int]]
"""The drafts behind the first m tokens of a text; m only rises."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference proposes: `tokens`, the `logits` [steps, draft vocabulary] of each, and
    the target's `ids` of the draft vocabulary (None: all, in order)."""

    tokens: Sequence[int]
    logits: NDArray[Any]
    ids: NDArray[np.int64] | None = None

    def gap(self, step: int, token: int) -> float:
        """How much less than its best the reference thinks of `token`, in its logits' spread."""
        row = self.logits[step]
        place = token if self.ids is None else int((self.ids == token).argmax())
        return float(row.max() - row[place]) / max(1.0, float(row.std()))


def check_drafts(
    what: str,
    expected: Sequence[Expected],
    plain: Sequence[Sequence[int]],
    stored: Sequence[Sequence[int]],
) -> dict[str, float]:
    """Raises `UserError` (`parity_failed`) where the fp32 graph's drafts are others."""
    if not all(bool(np.isfinite(one.logits).all()) for one in expected):
        raise UserError(
            f"{what} drafts by logits that are no numbers: its weights are too large, or damaged.",
            code="parity_failed",
            param=what,
        )
    ties, differences = 0, list[tuple[int, int, float]]()
    for prompt, (wanted, found) in enumerate(zip(expected, plain, strict=True)):
        step = first_difference(wanted.tokens, found)
        if step is None:
            continue
        gap = wanted.gap(step, found[step])
        ties += gap <= TOLERANCE
        if gap > TOLERANCE:
            differences.append((prompt, step, gap))
    if differences:
        prompt, step, gap = differences[0]
        raise UserError(
            f"parity failed: on {len(differences)} of {len(expected)} prompts the graph of {what}"
            f" drafts other tokens than torch does, first at step {step + 1} of prompt"
            f" {prompt + 1} ({gap:.3g} of the logits' spread apart).",
            code="parity_failed",
            param=what,
        )
    pairs = [
        one == other
        for wanted, found in zip(expected, stored, strict=True)
        for one, other in zip(wanted.tokens, found, strict=False)
    ]
    return {
        "prompts": float(len(expected)),
        "draft_tokens": float(sum(len(one.tokens) for one in expected)),
        "near_ties": float(ties),
        "stored_agreement": sum(pairs) / len(pairs),
    }


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    assert len(one) == len(other), "drafts of one length"
    pairs = enumerate(zip(one, other, strict=True))
    return next((place for place, (own, its) in pairs if own != its), None)


def measure_survival(
    answers: Sequence[Answer], proposer: Callable[[Answer], Proposer], longest: int
) -> tuple[float, ...]:
    """Per depth, the share of drafts whose tokens were the target's so far, on its own answers."""
    right, drafts = np.zeros(longest), np.zeros(longest)
    for answer in answers:
        ids, propose = answer.all_ids, proposer(answer)
        for begin in range(len(answer.prompt) + 1, len(ids), STRIDE):
            draft = list(propose(begin))[: min(longest, len(ids) - begin)]
            same = np.array(draft) == np.array(ids[begin : begin + len(draft)])
            right[: len(draft)] += np.cumprod(same)
            drafts[: len(draft)] += 1
    return tuple(float(share) for share in right / np.maximum(drafts, 1))


def shown(parity: Mapping[str, float], survival: Sequence[float]) -> str:
    """For a person: what rounding changed, and how often the drafts are right."""
    right = f"  right by depth: {' '.join(f'{share:.2f}' for share in survival)}"
    agreement = parity.get("stored_agreement")
    if agreement is None:
        return right
    told = f"in fp32 it drafts what torch does; as it is stored, {agreement:.1%} of those tokens"
    why = "" if agreement == 1 else " (that is rounding; answers are the target's all the same)"
    return f"  {told}{why}\n{right}"
