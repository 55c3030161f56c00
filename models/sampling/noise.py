"""Random numbers as a function: of a seed, a position, a purpose and a token.

A counter-based generator (as in Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011): nothing is drawn from a stream, so nothing that was drafted and rejected, batched or
computed twice can shift what comes after. The hash is the finalizer of SplitMix64 (Steele, Lea and
Flood, OOPSLA 2014) over a counter; the counter is the token, the key everything else.
"""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_UNIT = 2.0**-53
_ONE, _STEP = np.uint64(1), np.uint64(_GOLDEN)
_FACTORS = np.uint64(_FIRST), np.uint64(_SECOND)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)

_SOONEST = np.float32(1e-37)

_BLOCK = 8192
"""So many at a time fit into a processor's cache, and into memory that need not be asked for."""

_FEW = 12
"""Up to this many numbers are made one by one: sooner than arrays are set up."""

TAIL = -1
"""Stands for all tokens outside those that are listed, where a token is asked for."""

INSIDE_TAIL = -2
"""Which of them it is."""


class Purpose(IntEnum):
    """What a random number decides. Different purposes are independent of one another."""

    TOKEN = 1
    """The token itself: the noise that the coupled rule and its drafters share."""
    ACCEPT = 2
    """Whether a draft token is accepted; the token is its place among its siblings."""
    RESIDUAL = 3
    """What replaces a rejected draft, and what follows an accepted one."""
    DRAFT = 4
    """What a drafter draws where its noise must not be the target's."""


def uniforms(
    seed: int, position: int, purpose: Purpose, tokens: NDArray[np.int64]
) -> NDArray[np.float64]:
    """One number in (0, 1] per token, in steps of 2^-53."""
    bits = tokens.astype(np.uint64)
    bits += _ONE
    bits *= _STEP
    bits += np.uint64(_key(seed, position, purpose))
    bits ^= bits >> _SHIFTS[0]
    bits *= _FACTORS[0]
    bits ^= bits >> _SHIFTS[1]
    bits *= _FACTORS[1]
    bits ^= bits >> _SHIFTS[2]
    bits >>= _SHIFTS[3]
    bits += _ONE
    return bits.astype(np.float64) * _UNIT


def uniform(seed: int, position: int, purpose: Purpose, token: int) -> float:
    """`uniforms` for one token."""
    return _unit(_key(seed, position, purpose), token)


def exponentials(
    seed: int, position: int, purpose: Purpose, tokens: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Standard exponential variates, one per token.

    `argmin(exponentials / weights)` is the Gumbel-max draw of the weights: with E = -log(u) the
    Gumbel variate is G = -log(E), and argmax(log w + G) = argmin(E / w).
    """
    if tokens.size <= _FEW:
        key = _key(seed, position, purpose)
        return np.array([-math.log(_unit(key, token)) for token in tokens.tolist()])
    return -np.log(uniforms(seed, position, purpose, tokens))


def counters(tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    """What `gumbels` wants of tokens, computed once for many calls."""
    return (tokens.astype(np.uint64) + _ONE) * _STEP


def gumbels(
    seed: int,
    position: int,
    purpose: Purpose,
    tokens: NDArray[np.uint64],
    out: NDArray[np.float32],
) -> None:
    """Fill `out` with Gumbel variates of `counters`: -log of what `exponentials` gives.

    `argmax(log w + gumbels)` is so the same draw as `argmin(exponentials / w)`.
    """
    key = np.uint64(_key(seed, position, purpose))
    for start in range(0, tokens.size, _BLOCK):
        _fill(tokens[start : start + _BLOCK] + key, out[start : start + _BLOCK])


def choice_seed(seed: int, choice: int) -> int:
    """The seed of answer `choice` of several to one prompt; that of the first is `seed`."""
    if choice == 0:
        return seed
    return _mix(_mix(seed & _MASK) + choice * _GOLDEN & _MASK) >> 11


def _fill(bits: NDArray[np.uint64], out: NDArray[np.float32]) -> None:
    """Hash in place, then two logarithms."""
    shifted = bits >> _SHIFTS[0]
    bits ^= shifted
    bits *= _FACTORS[0]
    np.right_shift(bits, _SHIFTS[1], out=shifted)
    bits ^= shifted
    bits *= _FACTORS[1]
    np.right_shift(bits, _SHIFTS[2], out=shifted)
    bits ^= shifted
    bits >>= _SHIFTS[3]
    bits += _ONE
    times = bits.astype(np.float64)
    times *= _UNIT
    np.log(times, out=times)
    np.negative(times, out=out, casting="same_kind")
    # u = 1 gives the time 0, whose logarithm is no number to add to.
    np.maximum(out, _SOONEST, out=out)
    np.log(out, out=out)
    np.negative(out, out=out)


def _key(seed: int, position: int, purpose: Purpose) -> int:
    return _mix(_mix(_mix(seed & _MASK) ^ position) + purpose * _GOLDEN & _MASK)


def _unit(key: int, token: int) -> float:
    return ((_mix(key + (token + 1) * _GOLDEN & _MASK) >> 11) + 1) * _UNIT


def _mix(bits: int) -> int:
    bits = (bits ^ bits >> 30) * _FIRST & _MASK
    bits = (bits ^ bits >> 27) * _SECOND & _MASK
    return bits ^ bits >> 31
