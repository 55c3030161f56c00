"""Full and read-only disks: what cannot be kept is kept in memory, and nobody's answer fails."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import io
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from bench.gateway_process import free_port
from gateway.engine.costs.cache import CalibrationCache, Key
from gateway.engine.ngram_opening import open_store
from gateway.engine.ngram_store import NgramStore, claim
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Speculation
from gateway.logs import PatientHandler
from models.drafters.store_file import UNFINISHED, append_text, read_texts, rewrite_texts
from models.errors import UserError
from models.package import Package
from tests.engine_support import FLAT, ask, make_prompt, running
from tests.patience import PATIENCE

LARGE = 1 << 30
FULL = [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO]


def refusing(code: int) -> object:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


@contextmanager
def no_room(most: int = 64) -> Iterator[None]:
    """Within the block no file of this process may grow beyond `most` bytes: writing fails where it
    does on a full disk, in the system call. pytest writes files too, but between tests."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("code", FULL)
async def test_a_store_that_cannot_be_claimed_is_in_memory(
    package: Package,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
) -> None:
    monkeypatch.setattr(Path, "mkdir", refusing(code))
    store = open_store(package, EngineOptions(ngram_store=tmp_path / "store"))
    assert store is not None
    assert "in memory alone" in caplog.text
    assert os.strerror(code) in caplog.text
    monkeypatch.setattr("gateway.engine.ngram_store.append_text", refusing(code))
    await store.load("ann")
    store.add("ann", (1, 2, 3))
    await store.close()
    assert caplog.text.count("n-gram store") == 1, "it is said once"


def test_a_store_that_may_not_be_written_by_us_is_a_mistake(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", refusing(errno.EACCES))
    with pytest.raises(UserError, match="Permission denied"):
        open_store(package, EngineOptions(ngram_store=tmp_path / "store"))


async def test_without_room_texts_are_drafted_from_memory_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with no_room():
        store = NgramStore(tmp_path, LARGE, "v", claim(tmp_path))
        await store.load("ann")
        for first in range(3):
            store.add("ann", range(first, first + 40))
        texts = store.texts("ann")
        assert texts is not None
        assert len(list(texts)) == 3
        await store.close()
    assert store.problem is not None
    assert caplog.text.count("the n-gram store in") == 1


def test_a_file_that_met_a_full_disk_has_whole_texts_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.ngrams"
    valid = append_text(path, "o", (1, 2, 3), 0)
    with no_room(valid + 10):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            append_text(path, "o", range(100), valid)
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            rewrite_texts(path, "o", [range(100)])
    assert read_texts(path, "o") == ([(1, 2, 3)], valid)
    assert not path.with_suffix(UNFINISHED).exists(), "it would take the room that is missing"
    valid = append_text(path, "o", (4, 5), valid)
    assert read_texts(path, "o") == ([(1, 2, 3), (4, 5)], valid)


def test_a_calibration_that_cannot_be_kept_leaves_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = Key("p", "CPU", 1, "1", "x", 64, 1)
    with no_room():
        CalibrationCache(tmp_path).store(key, dataclasses.replace(FLAT, measured_at="now"))
    assert "cannot be kept" in caplog.text
    assert list(tmp_path.iterdir()) == []
    assert CalibrationCache(tmp_path).load(key) is None


@pytest.mark.parametrize("code", FULL)
def test_a_cache_that_cannot_be_made_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(Path, "mkdir", refusing(code))
    key = Key("p", "CPU", 1, "1", "x", 64, 1)
    CalibrationCache(tmp_path / "c").store(key, dataclasses.replace(FLAT, measured_at="now"))


def test_a_cache_that_is_no_directory_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache, key = CalibrationCache(tmp_path / "file" / "c"), Key("p", "CPU", 1, "1", "x", 64, 1)
    assert cache.load(key) is None
    cache.store(key, dataclasses.replace(FLAT, measured_at="now"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be kept" in caplog.text


async def test_answers_come_while_the_store_cannot_be_written(
    tiny_package: Path, package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, speculation = make_prompt(40), Speculation("ngram", "fixed", 4)
    async with running(tiny_package) as engine:
        plain = await ask(engine, prompt, speculation=Speculation("off", "off"))
        engine.ngrams = open_store(package, EngineOptions(ngram_store=tmp_path / "store"))
        monkeypatch.setattr("gateway.engine.ngram_store.append_text", refusing(errno.ENOSPC))
        for _ in range(3):
            said = await ask(engine, prompt, user="ann", speculation=speculation)
            assert said.ids == plain.ids
        assert engine.ngrams is not None
        await asyncio.to_thread(engine.ngrams._worker.submit(lambda: None).result)
        assert engine.ngrams.problem is not None
        await engine.forget("ann")


class FullStream(io.StringIO):
    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_lines_of_the_log_that_are_lost_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    stream = FullStream()
    log = logging.getLogger("tests.full")
    log.propagate = False
    handler = PatientHandler(stream)
    log.addHandler(handler)
    try:
        for _ in range(3):
            log.error("one")
        stream.full = False
        log.error("two")
        log.error("three")
    finally:
        log.removeHandler(handler)
    assert stream.getvalue() == "two\n3 lines of the log were lost\nthree\n"
    assert capsys.readouterr().err == "", "no traceback for each of them"


async def test_a_gateway_whose_log_goes_to_a_full_disk_serves(tiny_package: Path) -> None:
    port = free_port()
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230 (a device that takes no time)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "gateway", "serve", "--port", str(port), "--package", str(tiny_package)),
            stdout=full,
            stderr=full,
            cwd=Path(__file__).parent.parent,
        )
        try:
            async with asyncio.timeout(90), aiohttp.ClientSession() as session:
                url = f"http://127.0.0.1:{port}"
                while True:
                    assert process.returncode is None
                    try:
                        async with session.get(f"{url}/ready") as ready:
                            if ready.status == 200:
                                break
                    except aiohttp.ClientConnectionError:
                        pass
                    await asyncio.sleep(0.1)
                body = {"input": "hello", "max_output_tokens": 4}
                async with session.post(f"{url}/v1/responses", json=body) as response:
                    assert response.status == 200
            process.terminate()
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
