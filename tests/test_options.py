"""Options of an engine are checked when they are made."""

from __future__ import annotations

import pytest

from gateway.engine.options import EngineOptions
from models.errors import UserError


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("slots", 1),
        ("queue", 0),
        ("prefill_chunk", 2),
        ("busy_chunk", 2),
        ("threads", 1),
        ("context", 16),
    ],
)
def test_a_value_below_the_least_is_refused_by_name(name: str, least: int) -> None:
    assert getattr(EngineOptions(**{name: least}), name) == least  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f"{name} must be at least {least}, not {least - 1}") as it:
        EngineOptions(**{name: least - 1})  # type: ignore[arg-type]
    assert (it.value.code, it.value.param) == ("invalid_setting", name)
