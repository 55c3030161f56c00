"""How often a draft token must be accepted for a round to be as fast as plain decoding."""

from __future__ import annotations

_STEPS = 50


def expected_tau(alpha: float, length: int) -> float:
    """Tokens of a round where each draft token is accepted with `alpha` if those before it were:
    (1 - alpha^(length + 1)) / (1 - alpha), arXiv 2211.17192."""
    return sum(alpha**depth for depth in range(length + 1))


def break_even(ratio: float, length: int) -> float | None:
    """The acceptance at which a round that takes `ratio` times plain decoding pays for itself.

    0 where it costs nothing more, None where not even certain drafts pay.
    """
    if ratio <= 1:
        return 0.0
    if ratio > length + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if expected_tau(middle, length) < ratio:
            low = middle
        else:
            high = middle
    return high
