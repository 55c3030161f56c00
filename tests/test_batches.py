"""What a run is made of: rows that share it, and a chunk of a prompt beside them."""

from __future__ import annotations

import asyncio

import pytest

from gateway.engine.batches import share
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.policies.offers import Offer, make_row
from gateway.engine.waiting import WaitingRow
from models.draft import Draft
from models.slots import Slot
from models.target import Row

DRAFT = Draft((7, 8))
COSTS = RunCosts.by_width({2: 10.0, 64: 10.0 + 62 * 3.0})
"""A place costs 3 ms, and plain decoding of two rows 10 ms."""


def decoding(index: int) -> WaitingRow:
    slot = Slot(index, 100, [])
    slot.commit((1, 2, 3))
    row = make_row(slot, 5, DRAFT)
    return WaitingRow(row, Offer(DRAFT, (0, 1), (0.4, 0.16)), DRAFT, 0, asyncio.Future())


def chunk(tokens: int) -> WaitingRow:
    row = Row(Slot(9, 100, []), tuple(range(tokens)), 0)
    return WaitingRow(row, None, Draft(), 1, asyncio.Future())


@pytest.mark.parametrize("prefills", [0, 1])
async def test_rows_share_a_run_as_if_no_chunk_were_in_it(prefills: int) -> None:
    """0.4 of a token is not worth 3 ms; against the 96 ms of a chunk it would be."""
    rows = [decoding(index) for index in range(2)]
    share(rows, [chunk(32)] * prefills, COSTS)
    assert [item.draft.tokens for item in rows] == [(), ()]
    assert [item.row.tokens for item in rows] == [(5,), (5,)]


async def test_what_is_certain_is_verified_beside_a_chunk_too() -> None:
    rows = [decoding(index) for index in range(2)]
    rows[1].offer = Offer(DRAFT, (0, 1), (1.0, 1.0))
    share(rows, [chunk(32)], COSTS)
    assert [item.draft.tokens for item in rows] == [(), (7, 8)]
