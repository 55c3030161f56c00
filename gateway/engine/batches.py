"""What a run or a job of drafts is made of."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.shape import NOBODY, RunShape
from gateway.engine.policies.allocation import allocate
from gateway.engine.policies.offers import Offer, make_row
from gateway.engine.waiting import Drafted, RunRow, WaitingDraft
from models.draft import Draft
from models.slots import Slot


def offered(slot: Slot, token: int, offer: Offer) -> RunRow:
    """The row of `token`, the last committed one, with all of `offer` behind it."""
    whole = offer.first(len(offer.order))
    return RunRow(make_row(slot, token, whole), offer, whole)


def alone(slot: Slot, token: int, offer: Offer, costs: RunCosts | None) -> RunRow:
    """The row of a run that has no other, with what of `offer` pays there; all of it without
    `costs`."""
    count = len(offer.order)
    if costs is not None and count:
        (count,) = allocate([offer], [slot.length], NOBODY, costs)
    draft = offer.first(count)
    return RunRow(make_row(slot, token, draft), offer, draft)


def share(decodes: Sequence[RunRow], prefills: Sequence[RunRow], costs: RunCosts) -> None:
    """Have every row of a run verify what of its offer is worth a place there."""
    offers = [item.offer for item in decodes if item.offer is not None]
    if not any(offer.order for offer in offers):
        return
    cached = [item.row.past for item in decodes]
    beside = RunShape.of((item.row.past, len(item.row.tokens)) for item in prefills)
    paid_ms = _added(beside, offers, cached, costs) if prefills else 0.0
    counts = allocate(offers, cached, beside, costs, paid_ms)
    for item, count in zip(decodes, counts, strict=True):
        item.take(count)


def _added(
    beside: RunShape, offers: Sequence[Offer], cached: Sequence[int], costs: RunCosts
) -> float:
    """Milliseconds that `beside` adds to a run of the rows without what may be left out."""
    rows = RunShape.of((past, 1 + offer.least) for past, offer in zip(cached, offers, strict=True))
    return costs.predict(rows.also(beside)) - costs.predict(rows)


def timed_drafts(batch: Sequence[WaitingDraft]) -> list[Drafted | Exception]:
    """Every draft of a job, or what it failed with; drafts that nobody waits for are left out."""
    results: list[Drafted | Exception] = []
    for item in batch:
        started = time.perf_counter()
        try:
            draft = Draft() if item.future.cancelled() else item.propose()
        except Exception as error:  # handed to the one caller whose draft it was
            results.append(error)
        else:
            results.append(Drafted(draft, (time.perf_counter() - started) * 1e3))
    return results
