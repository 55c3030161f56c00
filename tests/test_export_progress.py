"""Long steps say that they began, and how long they took."""

from __future__ import annotations

import re

import pytest

from export.progress import Progress


def written(pieces: list[str]) -> str:
    return re.sub(r"\d+\.\d", "N", "".join(pieces))


def test_a_step_is_announced_before_it_is_timed() -> None:
    pieces: list[str] = []
    with Progress(pieces.append).step("loading"):
        assert pieces == ["loading ..."]
    assert written(pieces) == "loading ... N s\n"


def test_a_failed_step_is_not_timed() -> None:
    pieces: list[str] = []
    with pytest.raises(ValueError, match="no"), Progress(pieces.append).step("loading"):
        raise ValueError("no")
    assert written(pieces) == "loading ...\n"


def test_steps_end_where_the_next_begins() -> None:
    pieces: list[str] = []
    with Progress(pieces.append).steps() as begin:
        begin("one")
        assert written(pieces) == "one ..."
        begin("two")
        assert written(pieces) == "one ... N s\ntwo ..."
    assert written(pieces) == "one ... N s\ntwo ... N s\n"
