"""What was said to a user before, drafted for the same user and for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.engine.ngram_opening import open_store
from gateway.engine.ngram_store import claim
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Speculation
from models.errors import UserError
from models.package import Package
from tests.engine_support import Answered, Reference, TestEngine, ask, build_engine

PROMPT = tuple(range(3, 60))
"""No token comes twice."""

COUNT = 24
DRAFTING = Speculation("ngram", "fixed", 4)


@asynccontextmanager
async def remembering(package: Package, directory: Path) -> AsyncIterator[TestEngine]:
    engine = build_engine(package)
    engine.ngrams = open_store(package, EngineOptions(ngram_store=directory))
    try:
        yield engine
    finally:
        await engine.close()


async def said(
    engine: TestEngine, user: str | None, speculation: Speculation = DRAFTING
) -> Answered:
    return await ask(engine, PROMPT, max_tokens=COUNT, user=user, speculation=speculation)


def from_store(answered: Answered) -> int:
    part = answered.finished.timings.by_drafter.get("ngram-store")
    return 0 if part is None else part.draft_n


async def test_a_user_is_answered_faster_and_the_same(
    package: Package, reference: Reference, tmp_path: Path
) -> None:
    expected = reference.answer(PROMPT, COUNT)
    async with remembering(package, tmp_path) as engine:
        first = await said(engine, "ann")
        second = await said(engine, "ann")
    async with remembering(package, tmp_path) as engine:
        restarted = await said(engine, "ann")
    assert first.ids == second.ids == restarted.ids == expected
    assert from_store(first) == 0
    for again in (second, restarted):
        timings = again.finished.timings
        assert timings.by_drafter["ngram-store"].draft_n_accepted > COUNT / 2
        assert timings.rounds < first.finished.timings.rounds / 2
        assert again.sources.count("ngram-store") > COUNT / 2


@pytest.mark.parametrize("other", ["bob", None])
async def test_nobody_else_is_drafted_what_was_said_to_a_user(
    package: Package, tmp_path: Path, other: str | None
) -> None:
    """Not even so that the time would tell: nothing is drafted at all."""
    async with remembering(package, tmp_path) as engine:
        await said(engine, "ann")
        assert from_store(await said(engine, other)) == 0
        together = await asyncio.gather(said(engine, "eve"), said(engine, "ann"))
    assert from_store(together[0]) == 0
    assert from_store(together[1]) > 0


@pytest.mark.parametrize(
    "speculation", [Speculation("off"), Speculation("ngram", "off")], ids=["drafter", "policy"]
)
async def test_what_is_said_without_ngrams_is_not_kept(
    package: Package, tmp_path: Path, speculation: Speculation
) -> None:
    async with remembering(package, tmp_path) as engine:
        await said(engine, "ann", speculation)
        assert from_store(await said(engine, "ann")) == 0
    async with remembering(package, tmp_path) as engine:
        assert from_store(await said(engine, "ann", speculation)) == 0


async def test_who_is_forgotten_is_drafted_nothing(package: Package, tmp_path: Path) -> None:
    async with remembering(package, tmp_path) as engine:
        await said(engine, "ann")
        await engine.forget("ann")
        assert from_store(await said(engine, "ann")) == 0


async def test_without_a_store_nothing_is_kept(package: Package, tmp_path: Path) -> None:
    assert open_store(package, EngineOptions()) is None
    engine = build_engine(package)
    try:
        assert from_store(await said(engine, "ann")) == from_store(await said(engine, "ann")) == 0
        await engine.forget("ann")
    finally:
        await engine.close()


def test_a_place_that_cannot_be_written_is_an_error_of_the_setting(
    package: Package, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UserError) as error:
        open_store(package, EngineOptions(ngram_store=file / "store"))
    assert (error.value.code, error.value.param) == ("invalid_setting", "ngram_store")


async def test_another_gateways_place_is_an_error_of_the_setting(
    package: Package, tmp_path: Path
) -> None:
    with claim(tmp_path), pytest.raises(UserError, match="another gateway has it") as error:
        open_store(package, EngineOptions(ngram_store=tmp_path))
    assert (error.value.code, error.value.param) == ("store_in_use", "ngram_store")
    async with remembering(package, tmp_path):
        pass


async def test_engines_of_one_gateway_share_a_place(package: Package, tmp_path: Path) -> None:
    """As while a package is loaded anew: the old engine's last answers still run."""
    async with remembering(package, tmp_path) as old:
        await said(old, "ann")
        async with remembering(package, tmp_path) as new:
            assert new.ngrams is old.ngrams
            assert from_store(await said(new, "ann")) > 0
            await new.forget("ann")
            assert from_store(await said(old, "ann")) == 0
        assert from_store(await said(old, "ann")) > 0, "closing one leaves the other"
    with claim(tmp_path):
        pass
    async with remembering(package, tmp_path) as later:
        assert from_store(await said(later, "ann")) > 0, "what was said is kept"


async def test_a_store_that_is_taken_while_it_is_closed_stays_open(
    package: Package, tmp_path: Path
) -> None:
    options = EngineOptions(ngram_store=tmp_path)
    store = open_store(package, options)
    assert store is not None
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    assert open_store(package, options) is store
    await closing
    await store.load("ann")
    assert store.texts("ann") is not None
    await store.close()
    with claim(tmp_path):
        pass
