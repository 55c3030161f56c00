"""Acceptance of whole answers, with the standard error that differing prompts give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Drafted:
    """One answer: draft tokens verified, those accepted, rounds, tokens that the rounds brought.

    What is accepted behind the token that ends the answer is not in it.
    """

    verified: int
    accepted: int
    rounds: int
    advanced: int


def alpha(answers: Sequence[Drafted]) -> float | None:
    """Accepted / verified draft tokens; None where none was verified."""
    verified = sum(answer.verified for answer in answers)
    return sum(answer.accepted for answer in answers) / verified if verified else None


def alpha_error(answers: Sequence[Drafted]) -> float | None:
    """Standard error of `alpha` over prompts, by the jackknife; None for fewer than two."""
    left_out = _left_out(answers)
    return None if left_out is None else _jackknife(left_out)


def difference_error(first: Sequence[Drafted], second: Sequence[Drafted]) -> float | None:
    """Standard error of the difference of two alphas on the same prompts, in the same order."""
    one, other = _left_out(first), _left_out(second)
    return None if one is None or other is None else _jackknife(one - other)


def _left_out(answers: Sequence[Drafted]) -> NDArray[np.float64] | None:
    """Alpha without each answer in turn; None where that cannot be told."""
    accepted = np.array([answer.accepted for answer in answers], dtype=np.float64)
    verified = np.array([answer.verified for answer in answers], dtype=np.float64)
    others = verified.sum() - verified
    if len(answers) < 2 or not others.all():
        return None
    left: NDArray[np.float64] = (accepted.sum() - accepted) / others
    return left


def _jackknife(left_out: NDArray[np.float64]) -> float:
    count = left_out.size
    return float(np.sqrt((count - 1) / count * ((left_out - left_out.mean()) ** 2).sum()))
