"""How wide a run may get."""

from __future__ import annotations

import pytest

from gateway.engine.costs.limits import UNLIMITED, RunLimits


@pytest.mark.parametrize(
    ("limits", "by_rows"),
    [
        (UNLIMITED, {1: None, 4: None}),
        (RunLimits(row=8), {1: 7, 3: 7}),
        (RunLimits(run=16), {1: 15, 2: 7, 3: 3, 4: 3, 5: 1, 8: 1, 16: 0, 32: 0}),
        (RunLimits(row=4, run=16), {1: 3, 4: 3, 8: 1}),
    ],
)
def test_a_row_drafts_what_is_left_of_the_run(
    limits: RunLimits, by_rows: dict[int, int | None]
) -> None:
    assert {rows: limits.draft(rows) for rows in by_rows} == by_rows
