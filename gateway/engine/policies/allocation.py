"""How the rows of a run divide what it verifies.

The width of a run is one budget for all of its rows (as in DSpark and AdaSpec): a token gets a
place where it raises the tokens that all rows together advance a millisecond. Alone a request gets
what is best for it; in company those whose tokens are likeliest get the most, and as the run fills
a token must be ever likelier to be worth its place.

A chunk of a prompt that is in the run is paid for by that prompt. Rows that had to pay for it would
take tokens for cheap that cost more than they do in any run after it, and the prompt would wait.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
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
    offers: Sequence[Offer],
    cached: Sequence[int],
    beside: RunShape,
    costs: RunCosts,
    paid_ms: float = 0.0,
) -> list[int]:
    """Of every offer how many of its tokens the run verifies.

    `cached` are the tokens that each row follows, `beside` is what else is in the run. Maximises
    E[tokens of all rows] / (T - `paid_ms`), of which others pay that much. Rows with a `need` come
    first: as many of them as can be get enough to keep their targets.
    """
    if len(offers) == 1 and _is_simple(offers[0]):
        (offer,) = offers
        runs = costs.by_own_tokens(Load(beside, cached[0]), 1 + len(offer.worth))
        rounds = with_overhead(runs[1:], costs.overhead.ms - paid_ms)
        return [most_gain(offer.worth, rounds, drawn=offer.drawn)[0]]
    counts = [offer.least for offer in offers]
    ranked = _ranked(offers)
    if not ranked:
        return counts
    times = _times(offers, cached, beside, costs, ranked)
    needs = {
        row: offer.need
        for row, offer in enumerate(offers)
        if offer.need is not None and not offer.drawn
    }
    if not needs:
        return _counted(counts, _fastest(offers, ranked, (ms - paid_ms for ms in times)))
    known = list(times)
    fastest = _fastest(offers, ranked, (ms - paid_ms for ms in known))
    chosen = _for_needs(offers, needs, ranked, known, fastest)
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
) -> Iterator[float]:
    """Milliseconds of a round that verifies the first 0, 1, ... of `ranked`."""
    host = len(offers) * costs.overhead.ms
    widths = [1 + offer.least for offer in offers]
    base = RunShape.of(zip(cached, widths, strict=True)).also(beside)
    runs = costs.growing(base, _behind(ranked, cached, widths))
    if not any(offer.tree for offer in offers):
        return (run + host for run in runs)
    trees = accumulate(
        (offers[row].tree for _, row in ranked),
        operator.or_,
        initial=any(offer.tree and offer.least for offer in offers),
    )
    return (
        run * (costs.surcharge if tree else 1.0) + host
        for run, tree in zip(runs, trees, strict=True)
    )


def _behind(
    ranked: Sequence[_Place], cached: Sequence[int], widths: Sequence[int]
) -> Iterator[int]:
    """The cached tokens that the attention of each of `ranked` reads, beyond what its row, of
    `widths` before, reads anyway."""
    widths = list(widths)
    for _, row in ranked:
        widths[row] += 1
        yield cached[row] if widths[row] > LEAST_WIDTH else 0


def _fastest(
    offers: Sequence[Offer], ranked: Sequence[_Place], times: Iterable[float]
) -> Sequence[_Place]:
    """The first of `ranked`, as many as maximise expected tokens / milliseconds."""
    tau = sum(1.0 + sum(offer.worth[: offer.least]) for offer in offers)
    drawn = any(offer.drawn for offer in offers)
    best, _ = most_gain([worth for worth, _ in ranked], times, tau, drawn=drawn)
    return ranked[:best]


def with_overhead(runs: Sequence[float], host_ms: float) -> list[float]:
    """Rounds of such runs."""
    return [run + host_ms for run in runs]


def most_gain(
    worth: Sequence[float], times: Iterable[float], tau: float = 1.0, *, drawn: bool = False
) -> tuple[int, float]:
    """The tokens to verify, and how many times faster than without them that should be.

    `worth` never rises and `times`, the milliseconds of a round with 0, 1, ... of them, never fall;
    `tau` are the expected tokens without any. Where tokens were `drawn` the first that does not
    pay ends the search, so that whether a token is verified depends on what comes before it alone.
    """
    times = iter(times)
    plain = next(times)
    rate, left = plain / tau, len(worth)
    best, best_gain = 0, 1.0
    for count, (each, ms) in enumerate(zip(worth, times, strict=True), start=1):
        tau += each
        left -= 1
        gain = tau * rate / ms
        # A lone token is padded to a run of two: the first draft token of a stream that is
        # alone is free, and needs no margin.
        if gain > best_gain and (gain >= LEAST_GAIN or ms <= plain):
            best, best_gain = count, gain
        elif drawn or (tau + left * each) * rate <= best_gain * ms:
            break  # not even if all that is left were worth as much, for nothing
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
