"""A gateway killed at each moment comes back: the short version, on the tiny package."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from bench.crash_victim import KEY, MOMENTS, Place, half_written, torn
from bench.crashes import Outcome, findings, measure
from models.drafters.store_file import append_text

TEXTS = ["the one and the other", "one two three", "a word and another word"]


async def test_killed_at_every_moment_it_comes_back(tiny_package: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, tiny_package)
    place.prepare()
    outcome = await measure(place, list(MOMENTS), 6, TEXTS, random.Random(1))
    assert dict(outcome.kills) == {"load": 2, "prefill": 2, "stream": 2}
    assert (outcome.lost, outcome.differing) == ([], 0)
    assert (outcome.half_written, outcome.torn) == ([], [])
    assert len(outcome.back) == 7
    assert list(place.texts.glob("*.ngrams")), "something was kept that could be torn"
    assert list(place.calibrations.glob("*.json"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path, tmp_path)
    place.prepare()
    place.calibrations.mkdir(parents=True)
    place.texts.mkdir()
    return place


def test_what_is_half_written_is_found(place: Place) -> None:
    good = place.calibrations / "a.json"
    good.write_text(json.dumps({"points": [[1, 2, 3, 4, 5.0]]}))
    assert half_written(place) == []
    good.write_text(good.read_text()[:-3])
    assert half_written(place) == ["a.json is cut off"]
    good.write_text('{"points": []}')
    assert half_written(place) == ["a.json is empty"]
    good.unlink()
    place.keys.write_text(f"bench:{KEY}")
    assert half_written(place) == ["the file of keys was changed"]


def test_a_torn_text_is_found(place: Place) -> None:
    path = place.texts / "x.ngrams"
    append_text(path, "somebody", (1, 2, 3), 0)
    assert torn(place) == []
    path.write_bytes(path.read_bytes() + b"\x01\x02")
    assert torn(place) == ["x.ngrams has 2 bytes that are no text"]


def test_every_problem_breaks_a_promise() -> None:
    assert findings(Outcome(), {}).held
    for outcome in (
        Outcome(lost=["x"]),
        Outcome(differing=1),
        Outcome(half_written=["x"]),
        Outcome(torn=["x"]),
    ):
        assert not findings(outcome, {}).held
