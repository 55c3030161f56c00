"""Orthogonal matrices for rotating activations.

A rotation spreads the few large channels of an activation over all of them, so that one scale fits
all: QuaRot (arXiv 2404.00456) with random Hadamard matrices, SpinQuant (arXiv 2405.16406).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def rotation(size: int, seed: int) -> Matrix:
    """A seeded orthogonal [size, size]: a Hadamard matrix with random signs where size allows it.

    `size` = odd * 2^k: the Kronecker product of a random orthogonal [odd, odd] and the Hadamard
    matrix of order 2^k.
    """
    rng = np.random.default_rng(seed)
    power = size & -size
    signs = rng.choice((-1.0, 1.0), size)
    mixed = np.kron(_random_orthogonal(size // power, rng), hadamard(power))
    return np.asarray(signs[:, None] * mixed, np.float64)


def hadamard(size: int) -> Matrix:
    """Sylvester's orthonormal Hadamard matrix; `size` is a power of two."""
    assert size & (size - 1) == 0, size
    matrix: Matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(matrix / np.sqrt(size), np.float64)


def _random_orthogonal(size: int, rng: np.random.Generator) -> Matrix:
    """Haar-distributed: QR of a Gaussian matrix, signs of R's diagonal moved into Q."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(q * np.where(np.diagonal(r) < 0, -1.0, 1.0), np.float64)


def rotate_blocks(rows: NDArray[np.float32], order: int) -> NDArray[np.float32]:
    """Multiply every block of `order` columns by the Hadamard matrix of that order."""
    blocks = rows.reshape(len(rows), -1, order)
    turned = blocks @ hadamard(order).astype(np.float32)
    return np.asarray(turned.reshape(rows.shape), np.float32)
