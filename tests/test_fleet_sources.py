"""Which packages are configured, and with what options each is loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gateway.engine.observer import UNOBSERVED
from gateway.engine.options import EngineOptions
from gateway.fleet.fleet import Fleet
from gateway.fleet.sources import first_package, options_of, read_sources
from gateway.fleet.starting import Starter
from models.errors import UserError
from models.memory import memory_need
from models.package import Package, file_entry, load_package, read_manifest, write_manifest
from tests.fleet_support import renamed

OPTIONS = EngineOptions(slots=2, context=64)


@pytest.fixture
def two(package: Package, tmp_path: Path) -> Path:
    """A directory with the packages `one` and `two`, and a file."""
    directory = tmp_path / "packages"
    directory.mkdir()
    (directory / "notes.txt").write_text("no package")
    for name in ("one", "two"):
        renamed(package, directory / name, name)
    return directory


def test_a_package_and_a_directory_of_them(tiny_package: Path, two: Path, package: Package) -> None:
    sources = read_sources(tiny_package, (two, two / "one"), OPTIONS)
    assert [source.name for source in sources] == ["tiny", "one", "two"]
    assert sources[1].path == two / "one"
    assert sources[0].context_length == 64
    assert sources[0].need == memory_need(package, 2, 64, OPTIONS.prefill_chunk)
    assert [source.name for source in read_sources(two, (), OPTIONS)] == ["one", "two"]
    assert first_package(two) == two / "one"
    assert first_package(tiny_package) == tiny_package
    assert first_package(two / "none") == two / "none", "which says what is missing"


def test_what_is_wrong_with_a_named_one_is_an_error(tmp_path: Path, two: Path) -> None:
    with pytest.raises(UserError, match=r"package\.json is missing"):
        read_sources(tmp_path / "none", (), OPTIONS)
    (two / "two" / "package.json").write_text("{}")
    with pytest.raises(UserError, match="schema version"):
        read_sources(two / "one", (two / "two",), OPTIONS)


def test_one_of_a_directory_that_cannot_be_read_is_left_out(
    two: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (two / "one" / "package.json").write_text("{}")
    assert [source.name for source in read_sources(two, (), OPTIONS)] == ["two"]
    assert "one is left out" in caplog.text


def test_each_has_its_own_ngrams_and_no_longer_a_context_than_its_own(
    tiny_package: Path, tmp_path: Path
) -> None:
    options = dataclasses.replace(OPTIONS, context=1 << 20, ngram_store=tmp_path)
    (source,) = read_sources(tiny_package, (), options)
    default = options_of(source, options, default=True)
    assert (default.context, default.ngram_store) == (1 << 20, tmp_path), "as it always was"
    other = options_of(dataclasses.replace(source, name="a/b"), options, default=False)
    assert other.context == source.context_length < 1 << 20
    assert other.ngram_store == tmp_path / "package-a_b"


async def test_a_package_is_loaded_and_freed_and_found_broken(two: Path, package: Package) -> None:
    """The real thing: ONNX Runtime, the probe, the calibration."""
    said: list[str] = []
    fleet = Fleet()
    sources = read_sources(two, (), OPTIONS)
    starter = Starter(OPTIONS, "one", fleet.turns, lambda model: UNOBSERVED, said.append)
    for source in sources:
        fleet.add(source, starter, starter.forget)
    try:
        await fleet.start()
        assert any("loaded one in" in line for line in said)
        await fleet.forget("nobody")
        # A graph that is none, in a package whose digests are right.
        graph = package.manifest.target.graphs["1"]
        broken = two / "two"
        (broken / graph).unlink()
        (broken / graph).write_bytes(b"no graph")
        manifest = read_manifest(broken)
        files = {**manifest.files, graph: file_entry(broken / graph)}
        write_manifest(broken, dataclasses.replace(manifest, files=files))
        with pytest.raises(UserError) as refused:
            await fleet.pick("two")
        assert refused.value.code == "package_failed"
        assert "cannot load" in (fleet.member("two").problem or "")
        with pytest.raises(UserError, match="ONNX Runtime cannot load"):
            await fleet.member("two").load()
        assert (await fleet.pick("one")).engine.package.manifest.name == "one"
        # One that has another name by now is not what the requests mean.
        write_manifest(
            two / "one", dataclasses.replace(load_package(two / "one").manifest, name="x")
        )
        with pytest.raises(UserError, match="is called 'x' now"):
            await fleet.switch("one")
        assert fleet.member("one").state == "loaded"
    finally:
        await fleet.close()
