"""How the rows of a run divide what it verifies.

The width of a run is one budget for all of its rows (as in DSpark and AdaSpec): a token gets a
place where it raises the tokens that all rows together advance a millisecond. Alone a request gets
what is best for it; in company those whose tokens are likeliest get the most, and as the run fills
a token must be ever likelier to be worth its place.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import Load, RunShape
from gateway.engine.policies.offers import Need, Offer
from models.rows import LEAST_WIDTH

LEAST_GAIN = 1.03
"""A draft that makes the run dearer must promise this much, so that noise never decides for it."""


_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Draft tokens of a run that are considered where targets are to be kept."""

_Place = tuple[float, int]
"""A draft token that may be verified: what it is worth, and whose it is."""


def allocate(
    offers: Sequence[Offer], cached: Sequence[int], beside: RunShape, costs: RunCosts
) -> list[int]:
    """Of every offer how many of its tokens the run verifies.

    `cached` are the tokens that each row follows, `beside` is what else is in the run (a chunk of
    a prompt). Maximises E[tokens of all rows] / T. Rows with a `need` come first: as many of them
    as can be get enough to keep their targets.
    """
    if len(offers) == 1 and _is_simple(offers[0]):
        (offer,) = offers
        runs = costs.by_own_tokens(Load(beside, cached[0]), 1 + len(offer.worth))
        return [gain_of(offer.worth, runs, costs.overhead.ms, drawn=offer.drawn)[0]]
    counts = [offer.least for offer in offers]
    ranked = _ranked(offers)
    if not ranked:
        return counts
    times = _times(offers, cached, beside, costs, ranked)
    chosen = _most_per_millisecond(offers, ranked, times)
    needs = {
        row: offer.need
        for row, offer in enumerate(offers)
        if offer.need is not None and not offer.drawn
    }
    if needs:
        chosen = _for_needs(offers, needs, ranked, times, chosen)
    return _counted(counts, chosen)


def _is_simple(offer: Offer) -> bool:
    """Alone a chain has the whole run: most tokens a millisecond is also what keeps its target."""
    return not offer.tree and not offer.least


def _ranked(offers: Sequence[Offer]) -> list[_Place]:
    """All tokens that may be left out, the likeliest first, those of a row in its order."""
    places = [
        (worth, row) for row, offer in enumerate(offers) for worth in offer.worth[offer.least :]
    ]
    if len(offers) > 1:
        places.sort(key=itemgetter(0), reverse=True)
    return places


def _times(
    offers: Sequence[Offer],
    cached: Sequence[int],
    beside: RunShape,
    costs: RunCosts,
    ranked: Sequence[_Place],
) -> list[float]:
    """Milliseconds of a round that verifies the first 0, 1, ... of `ranked`."""
    host = len(offers) * costs.overhead.ms
    widths = [1 + offer.least for offer in offers]
    base = RunShape.of(zip(cached, widths, strict=True)).also(beside)
    behind = []
    for _, row in ranked:
        widths[row] += 1
        behind.append(cached[row] if widths[row] > LEAST_WIDTH else 0)
    runs = costs.growing(base, behind)
    if not any(offer.tree for offer in offers):
        return [run + host for run in runs]
    branched = [any(offer.tree and offer.least for offer in offers)]
    branched += accumulate((offers[row].tree for _, row in ranked), operator.or_)
    return [
        run * (costs.surcharge if tree or branched[0] else 1.0) + host
        for run, tree in zip(runs, branched, strict=True)
    ]


def _most_per_millisecond(
    offers: Sequence[Offer], ranked: Sequence[_Place], times: Sequence[float]
) -> Sequence[_Place]:
    """The first of `ranked`, as many as maximise expected tokens / milliseconds.

    Where tokens were drawn the first that does not pay ends the search, so that whether a token is
    verified depends on what comes before it alone.
    """
    tau = sum(1.0 + sum(offer.worth[: offer.least]) for offer in offers)
    plain, rate = times[0], times[0] / tau
    drawn = any(offer.drawn for offer in offers)
    best, best_gain = 0, 1.0
    for count, ((worth, _), ms) in enumerate(zip(ranked, times[1:], strict=True), start=1):
        tau += worth
        gain = tau * rate / ms
        if gain > best_gain and (ms <= plain or gain >= LEAST_GAIN):
            best, best_gain = count, gain
        elif drawn:
            break
    return ranked[:best]


def gain_of(
    worth: Sequence[float], runs: Sequence[float], overhead_ms: float, *, drawn: bool = False
) -> tuple[int, float]:
    """Of one row the tokens to verify, and how many times faster than plain decoding that should
    be. `runs[n]` are the milliseconds of its run with n tokens, the first of them committed."""
    plain = runs[1] + overhead_ms
    best, best_gain, tau = 0, 1.0, 1.0
    for count, (each, run) in enumerate(zip(worth, runs[2:], strict=True), start=1):
        tau += each
        cost = run + overhead_ms
        gain = tau * plain / cost
        # A lone token is padded to a run of two: the first draft token of a stream that is
        # alone is free, and needs no margin.
        if gain > best_gain and (cost <= plain or gain >= LEAST_GAIN):
            best, best_gain = count, gain
        elif drawn:
            break
    return best, best_gain


def _for_needs(
    offers: Sequence[Offer],
    needs: dict[int, Need],
    ranked: Sequence[_Place],
    times: Sequence[float],
    fastest: Sequence[_Place],
) -> Sequence[_Place]:
    """The places with which most rows keep their targets, the fastest of those; `fastest` where no
    others keep more of them.

    For widths of the run, every narrow one: first what its rows with targets need at least, those
    that need the fewest tokens first; what is left of the width goes to the likeliest tokens.
    """
    least = [offer.least for offer in offers]
    most = len(_met(offers, needs, _counted(least, fastest), times[len(fastest)]))
    if most == len(needs):
        return fastest
    best, best_score = fastest, (most, float("inf"))
    for width in (width for width in _WIDTHS if width < len(times)):
        round_ms = times[width]
        chosen = _filled(ranked, _needed(offers, needs, round_ms, width), width)
        counts = _counted(least, chosen)
        tau = sum(
            1.0 + sum(offer.worth[:count]) for offer, count in zip(offers, counts, strict=True)
        )
        score = (len(_met(offers, needs, counts, round_ms)), tau / round_ms)
        if score > best_score:
            best, best_score = chosen, score
    return best


def _needed(
    offers: Sequence[Offer], needs: dict[int, Need], round_ms: float, width: int
) -> dict[int, int]:
    """By row the tokens beyond its least that keep its target, for as many rows as fit."""
    wanted = []
    for row, need in needs.items():
        tau = need.expected_tokens(round_ms)
        survivals = accumulate(offers[row].worth, initial=1.0)
        enough = next((n for n, expected in enumerate(survivals) if expected >= tau), None)
        if enough is not None:
            wanted.append((max(0, enough - offers[row].least), row))
    found: dict[int, int] = {}
    for count, row in sorted(wanted):
        if count <= width:
            found[row] = count
            width -= count
    return found


def _filled(ranked: Sequence[_Place], needed: dict[int, int], width: int) -> list[_Place]:
    """`width` places: the needed ones, then the likeliest."""
    left = dict(needed)
    spare = width - sum(needed.values())
    chosen = []
    for place in ranked:
        row = place[1]
        if left.get(row, 0) > 0:
            left[row] -= 1
            chosen.append(place)
        elif spare > 0:
            spare -= 1
            chosen.append(place)
    return chosen


def _met(
    offers: Sequence[Offer], needs: dict[int, Need], counts: Sequence[int], round_ms: float
) -> set[int]:
    """The rows whose targets such a round keeps."""
    return {
        row
        for row, need in needs.items()
        if 1.0 + sum(offers[row].worth[: counts[row]]) >= need.expected_tokens(round_ms)
    }


def _counted(least: Sequence[int], chosen: Sequence[_Place]) -> list[int]:
    counts = list(least)
    for _, row in chosen:
        counts[row] += 1
    return counts
