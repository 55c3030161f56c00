"""Numbers that are looked up."""

from __future__ import annotations

import numpy as np
import pytest

from models.counting import numbers


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize(("start", "end"), [(0, 1), (5, 5), (7, 12), (3_000, 3_004), (0, 9_999)])
def test_they_are_those_from_start_on(start: int, end: int, kind: type[np.int64]) -> None:
    found = numbers(start, end, kind)
    assert found.tolist() == list(range(start, end))
    assert found.dtype == kind
    assert not found.flags.writeable, "they are everybody's"
