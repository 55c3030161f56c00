"""A gateway killed at each moment comes back: the short version, on the tiny package."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from bench.crash_kept import half_written, packages_of, torn
from bench.crash_moments import MOMENTS
from bench.crash_victim import KEY, OWNER, Place
from bench.crashes import Life, findings, measure, place_of
from bench.setup import Setup
from models.drafters.store_file import append_text
from models.package import load_package

TEXTS = ["the one and the other", "one two three", "a word and another word"]


async def test_killed_at_every_moment_it_comes_back(tiny_package: Path, tmp_path: Path) -> None:
    place = place_of(Setup(load_package(tiny_package), ()), tmp_path)
    lives = await measure(place, list(MOMENTS), 8, TEXTS, random.Random(1))
    found = findings(lives, {})
    assert [life for life in lives if not (life.served and life.same)] == []
    assert found.held, [(life.half_written, life.torn) for life in lives]
    assert found.figures["kills"] == {"load": 2, "prefill": 2, "stream": 2, "swap": 2}
    assert found.tables[0].rows == [
        (name, "2", "2", "2", "0", "0") for name in ("load", "prefill", "stream", "swap")
    ]
    assert all(life.answer == lives[0].answer for life in lives)
    # Of both packages something was kept that could be torn.
    assert list(place.texts.glob("*.ngrams"))
    assert list(place.texts.glob("*/*.ngrams"))
    assert list(place.calibrations.glob("*.json"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(name)
    place = Place(tmp_path, tmp_path / "first", tmp_path / "second", ("first", "second"))
    place.prepare()
    place.calibrations.mkdir(parents=True)
    place.texts.mkdir()
    return place


def test_what_is_half_written_is_found(place: Place) -> None:
    before = packages_of(place)
    good = place.calibrations / "a.json"
    whole = {"key": {"rows": 1}, "measured_at": "now", "points": [[1, 2, 3, 4, 5.0]], "checks": [1]}
    good.write_text(json.dumps(whole))
    (place.calibrations / "ab.partial").write_text("{")
    assert half_written(place, before) == []
    good.write_text(good.read_text()[:-3])
    assert half_written(place, before) == ["a.json is cut off"]
    good.write_text(json.dumps({**whole, "points": []}))
    assert half_written(place, before) == ["a.json is empty"]
    good.unlink()
    (place.cache / "engine").write_text("")
    assert half_written(place, before) == ["engine is empty"]
    (place.cache / "engine").unlink()
    place.keys.write_text(f"{OWNER}:{KEY}")
    assert half_written(place, before) == ["the file of keys was changed"]
    place.prepare()
    (place.second / "weights").write_text("other")
    (place.package / "more").write_text("")
    assert half_written(place, before) == [
        "weights of a package was changed",
        "more of a package was changed",
    ]


def test_a_torn_text_is_found(place: Place) -> None:
    (place.texts / "second").mkdir()
    path = place.texts / "second" / "x.ngrams"
    append_text(path, "somebody", (1, 2, 3), 0)
    assert torn(place) == []
    path.write_bytes(path.read_bytes() + b"\x01\x02")
    assert torn(place) == ["x.ngrams has 2 bytes that are no text"]


def test_every_problem_breaks_a_promise() -> None:
    good = Life("load", back=1.0, answer="x")
    assert findings([good], {}).held
    for life in (
        Life("load"),
        Life("load", back=1.0, answer="x", lost=["it ended with status 1"]),
        Life("load", back=1.0, answer="y", same=False),
        Life("load", back=1.0, answer="x", half_written=["x"]),
        Life("load", back=1.0, answer="x", torn=["x"]),
    ):
        found = findings([good, life], {})
        assert not found.held
        assert found.tables[0].rows[0][:2] == ("load", "2")
