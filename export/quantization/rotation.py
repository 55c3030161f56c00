"""Orthogonal matrices for rotating activations.

A rotation spreads the few large channels of an activation over all of them, so that one scale fits
all: QuaRot (arXiv 2404.00456) with random Hadamard matrices, SpinQuant (arXiv 2405.16406).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def rotation(size: int, seed: int) -> Matrix:
    """A seeded orthogonal [size, size]: a Hadamard matrix with random signs where there is one.

    `size` = odd * 2^k. Every prime factor of the odd part takes a Hadamard matrix of four times its
    order, as far as Paley's constructions and the powers of two allow; what then is left of the odd
    part is a random orthogonal matrix.
    """
    rng = np.random.default_rng(seed)
    signs = rng.choice((-1.0, 1.0), size)
    power = size & -size
    odd = size // power
    matrix: Matrix = np.ones((1, 1))
    for prime in _prime_factors(odd):
        base = _paley(prime) if power % 4 == 0 else None
        if base is not None:
            matrix = np.asarray(np.kron(matrix, base), np.float64)
            power, odd = power // 4, odd // prime
    whole = np.kron(np.kron(_random_orthogonal(odd, rng), matrix), hadamard(power))
    return np.asarray(signs[:, None] * whole, np.float64)


def hadamard(size: int) -> Matrix:
    """Sylvester's orthonormal Hadamard matrix; `size` is a power of two."""
    assert size & (size - 1) == 0, size
    matrix: Matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(matrix / np.sqrt(size), np.float64)


def _paley(prime: int) -> Matrix | None:
    """An orthonormal Hadamard matrix of order 4 * prime, by Paley's first or second construction.

    The first needs a prime q = 4 * prime - 1, the second a prime q = 2 * prime - 1 = 1 mod 4.
    """
    order = 4 * prime
    if _is_prime(order - 1):
        core = _bordered_residues(order - 1, skew=True)
        return np.asarray((core + np.eye(order)) / np.sqrt(order), np.float64)
    q = 2 * prime - 1
    if _is_prime(q) and q % 4 == 1:
        core = _bordered_residues(q, skew=False)
        first, second = np.array([[1, 1], [1, -1]]), np.array([[1, -1], [-1, -1]])
        matrix = np.kron(core, first) + np.kron(np.eye(q + 1), second)
        return np.asarray(matrix / np.sqrt(order), np.float64)
    return None


def _bordered_residues(q: int, *, skew: bool) -> Matrix:
    """Conference matrix of order q + 1: quadratic residues of differences, bordered by ones."""
    squares = {value * value % q for value in range(1, q)}
    character = np.array([0.0] + [1.0 if value in squares else -1.0 for value in range(1, q)])
    difference = np.subtract.outer(np.arange(q), np.arange(q)) % q
    matrix: Matrix = np.ones((q + 1, q + 1))
    matrix[0, 0] = 0.0
    matrix[1:, 1:] = character[difference]
    if skew:
        matrix[1:, 0] = -1.0
    return matrix


def _prime_factors(number: int) -> list[int]:
    factors, divisor = [], 3
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 2
    return factors


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _random_orthogonal(size: int, rng: np.random.Generator) -> Matrix:
    """Haar-distributed: QR of a Gaussian matrix, signs of R's diagonal moved into Q."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(q * np.where(np.diagonal(r) < 0, -1.0, 1.0), np.float64)


def rotate_blocks(rows: NDArray[np.float32], order: int) -> NDArray[np.float32]:
    """Multiply every block of `order` columns by the Hadamard matrix of that order."""
    blocks = rows.reshape(len(rows), -1, order)
    turned = blocks @ hadamard(order).astype(np.float32)
    return np.asarray(turned.reshape(rows.shape), np.float32)
