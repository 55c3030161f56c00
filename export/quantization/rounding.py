"""Rounding weights to integers, one scale per output column.

`round_nearest` rounds each weight by itself. `round_gptq` (GPTQ, arXiv 2210.17323) rounds input row
by input row and lets the rows still to come make up for the error, weighted by the correlation of
the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

LEVELS = 127
_BLOCK = 96
_DAMPING = 0.01
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class IntegerWeight:
    """`values` [in, out] in -127..127 times `scales` [out]."""

    values: NDArray[np.int8]
    scales: Array

    def dequantized(self) -> Array:
        return self.values.astype(np.float32) * self.scales


def column_scales(weight: Array) -> Array:
    largest = np.abs(weight).max(0)
    scales: Array = (np.where(largest > 0, largest, 1.0) / LEVELS).astype(np.float32)
    return scales


def round_nearest(weight: Array) -> IntegerWeight:
    scales = column_scales(weight)
    return IntegerWeight(_to_levels(weight / scales), scales)


def round_gptq(weight: Array, hessian: NDArray[np.float32]) -> IntegerWeight:
    """`hessian` is X^T X of the inputs [in, in], up to a factor."""
    scales = column_scales(weight)
    order = np.argsort(-np.diagonal(hessian), kind="stable")
    factor = _inverse_factor(hessian[np.ix_(order, order)])
    rest = (weight[order] / scales).astype(np.float32)
    values = np.empty(weight.shape, np.int8)
    for begin in range(0, len(rest), _BLOCK):
        end = min(begin + _BLOCK, len(rest))
        errors = np.empty((end - begin, rest.shape[1]), np.float32)
        for row in range(begin, end):
            rounded = _to_levels(rest[row])
            values[order[row]] = rounded
            error = (rest[row] - rounded) / factor[row, row]
            rest[row + 1 : end] -= factor[row, row + 1 : end, None] * error
            errors[row - begin] = error
        rest[end:] -= factor[begin:end, end:].T @ errors
    return IntegerWeight(values, scales)


def _inverse_factor(hessian: NDArray[np.float32]) -> NDArray[np.float32]:
    """Upper U with U^T U the inverse of the damped Hessian.

    With the order of rows and columns reversed (J), H = J L L^T J gives U = J L^-1 J: one Cholesky
    factor and one triangular inverse, where the textbook takes two factors and a full inverse.
    """
    reversed_ = torch.from_numpy(np.ascontiguousarray(hessian[::-1, ::-1])).double()
    diagonal = reversed_.diagonal()
    diagonal += _DAMPING * max(float(diagonal.mean()), 1e-12)
    lower = torch.linalg.cholesky(reversed_)
    inverse = torch.linalg.solve_triangular(
        lower, torch.eye(len(lower), dtype=torch.float64), upper=False
    )
    factor: NDArray[np.float32] = inverse.flip(0, 1).float().numpy()
    return factor


def _to_levels(scaled: Array) -> NDArray[np.int8]:
    levels: NDArray[np.int8] = np.clip(np.rint(scaled), -LEVELS, LEVELS).astype(np.int8)
    return levels
