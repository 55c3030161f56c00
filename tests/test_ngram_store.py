"""The n-gram store: users apart, over restarts, bounded, and never in anybody's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.engine import ngram_store
from gateway.engine.ngram_store import MOST_USERS, NgramStore, claim, newest
from models.drafters.store import Texts
from models.errors import UserError
from tests.patience import HOLD

LARGE = 1 << 30


@asynccontextmanager
async def opened(
    directory: Path, most_bytes: int = LARGE, vocabulary: str = "v"
) -> AsyncIterator[NgramStore]:
    store = NgramStore(directory, most_bytes, vocabulary)
    try:
        yield store
    finally:
        await store.close()


async def known(store: NgramStore, user: str) -> list[tuple[int, ...]]:
    await store.load(user)
    texts = store.texts(user)
    assert texts is not None
    return list(texts)


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


async def add(store: NgramStore, user: str, *texts: tuple[int, ...]) -> None:
    await store.load(user)
    for text in texts:
        store.add(user, text)


async def test_it_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann", (1, 2, 3), (4, 5, 6))
        assert await known(store, "ann") == [(1, 2, 3), (4, 5, 6)]
    async with opened(tmp_path) as store:
        assert await known(store, "ann") == [(1, 2, 3), (4, 5, 6)]
        await add(store, "ann", (7, 8))
    async with opened(tmp_path) as store:
        assert await known(store, "ann") == [(1, 2, 3), (4, 5, 6), (7, 8)]


async def test_users_see_nothing_of_one_another(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann", (1, 2, 3))
        await add(store, "bob", (4, 5, 6))
        assert await known(store, "ann") == [(1, 2, 3)]
        assert await known(store, "bob") == [(4, 5, 6)]
        assert await known(store, "eve") == []
    ann, bob = files(tmp_path)
    ann.rename(tmp_path / "swap")
    bob.rename(ann)
    (tmp_path / "swap").rename(bob)
    async with opened(tmp_path) as store:
        assert await known(store, "ann") == await known(store, "bob") == [], (
            "files know their owner"
        )


async def test_files_tell_neither_names_nor_anything_to_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann@example.org", (1, 2, 3))
    (file,) = files(tmp_path)
    assert "ann" not in file.name
    assert b"ann" not in file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0


async def test_ids_of_another_vocabulary_are_no_texts(tmp_path: Path) -> None:
    async with opened(tmp_path, vocabulary="a") as store:
        await add(store, "ann", (1, 2, 3))
    async with opened(tmp_path, vocabulary="b") as store:
        assert await known(store, "ann") == []


async def test_forgetting_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann", (1, 2, 3))
        await add(store, "bob", (4, 5, 6))
        await store.forget("ann")
        assert store.texts("ann") is None
        store.add("ann", (1, 2, 3))
        assert await known(store, "ann") == []
        assert await known(store, "bob") == [(4, 5, 6)]
        await add(store, "ann", (7, 8, 9))
    async with opened(tmp_path) as store:
        assert await known(store, "ann") == [(7, 8, 9)]


async def test_forgetting_takes_what_a_rewriting_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann", (1, 2, 3))
    (file,) = files(tmp_path)
    async with opened(tmp_path) as store:
        file.with_suffix(".new").write_bytes(file.read_bytes())
        await store.forget("ann")
    assert files(tmp_path) == []


async def test_what_could_not_be_deleted_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann", (1, 2, 3))
    (file,) = files(tmp_path)
    async with opened(tmp_path) as store:
        file.unlink()
        (file / "no file").mkdir(parents=True)
        with pytest.raises(UserError, match="could not delete") as error:
            await store.forget("ann")
        assert error.value.code == "not_deleted"
        assert store.texts("ann") is None


async def test_a_directory_is_of_one_gateway(tmp_path: Path) -> None:
    store = NgramStore(tmp_path, LARGE, "v", claim(tmp_path))
    with pytest.raises(BlockingIOError):
        claim(tmp_path)
    await store.close()
    claim(tmp_path).close()


async def test_forgetting_while_it_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann", (1, 2, 3))
    async with opened(tmp_path) as store:
        await asyncio.gather(store.load("ann"), store.forget("ann"))
        assert not store.texts("ann")
        assert await known(store, "ann") == []


async def test_the_directory_is_bounded_and_the_oldest_file_goes(tmp_path: Path) -> None:
    text = tuple(range(100))
    async with opened(tmp_path, most_bytes=1500) as store:
        for user in ("ann", "bob", "cid", "ann", "dan"):
            await add(store, user, text)
            await asyncio.sleep(0.01)
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 1500
    async with opened(tmp_path) as store:
        assert await known(store, "dan") == [text]
        assert await known(store, "bob") == []


async def test_an_evicted_users_file_begins_anew(tmp_path: Path) -> None:
    text = tuple(range(100))
    async with opened(tmp_path, most_bytes=800) as store:
        await add(store, "ann", text)
        await asyncio.sleep(0.01)
        await add(store, "bob", text)
        store.add("ann", (1, 2, 3))
    async with opened(tmp_path) as store:
        assert await known(store, "ann") == [(1, 2, 3)]


async def test_a_users_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_store, "MOST_TOKENS", 100)
    monkeypatch.setattr(ngram_store, "_REWRITE_BYTES", 1000)
    async with opened(tmp_path) as store:
        for number in range(60):
            await add(store, "ann", (number,) * 20)
    (file,) = files(tmp_path)
    assert file.stat().st_size <= 1000
    async with opened(tmp_path) as store:
        kept = await known(store, "ann")
    assert kept == [(number,) * 20 for number in range(60 - len(kept), 60)]
    assert len(kept) >= 5


async def test_few_users_are_in_memory(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for number in range(3 * MOST_USERS):
            await add(store, f"user {number}", (number, 1, 2))
        held = [number for number in range(3 * MOST_USERS) if store.texts(f"user {number}")]
        assert len(held) == MOST_USERS
        assert await known(store, "user 0") == [(0, 1, 2)], "from the disk"


async def test_the_loop_never_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, threads = threading.Event(), set[str]()
    read = ngram_store.read_texts

    def slow(path: Path, owner: str) -> tuple[list[tuple[int, ...]], int]:
        threads.add(threading.current_thread().name)
        assert gate.wait(HOLD)
        return read(path, owner)

    monkeypatch.setattr(ngram_store, "read_texts", slow)
    async with opened(tmp_path) as store:
        loads = [asyncio.ensure_future(store.load("ann")) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert not any(load.done() for load in loads)
        loads[0].cancel()
        gate.set()
        await asyncio.wait(loads)
        assert isinstance(store.texts("ann"), Texts)
    assert threading.current_thread().name not in threads


async def test_a_disk_that_fails_costs_nobody_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "store"
    async with opened(directory) as store:  # which is not there
        await add(store, "ann", (1, 2, 3), (4, 5, 6))
        assert await known(store, "ann") == [(1, 2, 3), (4, 5, 6)]
        await store.forget("ann")
    assert store.problem is not None
    assert len(caplog.records) == 1, "said once"


async def test_after_closing_nothing_happens(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await add(store, "ann", (1, 2, 3))
    await store.load("bob")
    store.add("ann", (4, 5))
    assert store.texts("bob") is None
    with pytest.raises(UserError) as error:
        await store.forget("ann")
    assert error.value.code == "draining"


def test_the_newest_texts_that_fit() -> None:
    texts = [(1,) * 4, (2,) * 4, (3,) * 4]
    assert newest(texts, 8) == texts[1:]
    assert newest(texts, 11) == texts[1:]
    assert newest(texts, 12) == texts
    assert newest(texts, 3) == []
