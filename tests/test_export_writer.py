"""Nothing half-written is ever loadable."""

from __future__ import annotations

import collections
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.writer import ALIGNMENT, check_space, externalise, locked, save_graph, staged, sweep
from models.errors import UserError


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def write_into(out: Path, text: str, *, replace: bool = False) -> None:
    with staged(out, replace=replace) as staging:
        (staging / "file").write_text(text)


def test_the_directory_appears_whole_and_readable(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "package"
    with staged(out, replace=False) as staging:
        (staging / "file").write_text("content")
        assert not out.exists()
        assert staging.parent == out.parent
    assert (out / "file").read_text() == "content"
    assert names(out.parent) == ["package"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~mask


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_a_failure_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    def fail() -> None:
        with staged(tmp_path / "package", replace=False) as staging:
            (staging / "file").write_text("half")
            raise failure

    with pytest.raises(failure):
        fail()
    assert names(tmp_path) == []


def test_existing_output_is_kept_unless_replaced(tmp_path: Path) -> None:
    out = tmp_path / "package"
    write_into(out, "old")
    with pytest.raises(UserError, match="exists already") as caught:
        write_into(out, "new")
    assert caught.value.code == "output_exists"
    assert (out / "file").read_text() == "old"
    write_into(out, "new", replace=True)
    assert (out / "file").read_text() == "new"
    assert names(tmp_path) == ["package"]


def test_a_failed_replacement_keeps_the_old(tmp_path: Path) -> None:
    out = tmp_path / "package"
    write_into(out, "old")
    with pytest.raises(RuntimeError), staged(out, replace=True):
        raise RuntimeError
    assert (out / "file").read_text() == "old"
    assert names(tmp_path) == ["package"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    def fill() -> None:
        with staged(tmp_path / "package", replace=False) as staging:
            (staging / "target.weights").symlink_to("/dev/full")
            (staging / "target.weights").write_bytes(b"x" * 100_000)

    with pytest.raises(UserError, match="disk is full") as caught:
        fill()
    assert caught.value.code == "disk_full"
    assert names(tmp_path) == []


def test_an_unwritable_place_is_said(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(UserError, match="cannot write") as caught:
        write_into(blocker / "package", "x")
    assert caught.value.code == "unwritable"


def test_too_little_space_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = collections.namedtuple("usage", "total used free")(8 << 30, 7 << 30, 1 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check_space(tmp_path, 1 << 30)
    with pytest.raises(UserError, match=r"about 3\.0 GiB, 1\.0 GiB are free"):
        check_space(tmp_path, 3 << 30)


def test_large_initializers_go_out_aligned_and_come_back_equal(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = {
        "small": random.normal(size=16).astype(np.float32),
        "large": random.normal(size=(300, 7)).astype(np.float32),
        "bytes": random.integers(0, 255, 5000).astype(np.uint8),
    }
    graph = helper.make_graph(
        [helper.make_node("Identity", ["large"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [300, 7])],
        [numpy_helper.from_array(values, name) for name, values in arrays.items()],
    )
    model = helper.make_model(graph)
    skeleton = externalise(model, tmp_path / "target.weights")
    save_graph(skeleton, tmp_path / "graph.onnx")
    stored = onnx.load(tmp_path / "graph.onnx", load_external_data=False)
    for tensor in stored.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        assert bool(entries) == (tensor.name != "small")
        assert int(entries.get("offset", 0)) % ALIGNMENT == 0
    read = onnx.load(tmp_path / "graph.onnx")
    for tensor in read.graph.initializer:
        assert (numpy_helper.to_array(tensor) == arrays[tensor.name]).all()
    assert (numpy_helper.to_array(model.graph.initializer[1]) == arrays["large"]).all()


def _left(tmp_path: Path, suffix: str) -> Path:
    """What a process that was killed a while ago has left."""
    path = tmp_path / f".package.abc{suffix}"
    path.mkdir()
    (path / "target.weights").write_bytes(b"half")
    os.utime(path, (0, 0))
    return path


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = _left(tmp_path, ".partial")
    with staged(tmp_path / "package", replace=False):
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_what_another_process_writes_stays(tmp_path: Path) -> None:
    theirs, fresh = _left(tmp_path, ".partial"), tmp_path / ".package.new.partial"
    fresh.mkdir()
    with locked(theirs), staged(tmp_path / "package", replace=False):
        assert theirs.exists()
        assert fresh.exists()


def test_a_directory_is_not_locked_by_others_before_its_owner_has_done_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".package.new.partial").mkdir()
    tried: list[Path] = []
    monkeypatch.setattr("export.writer.locked", tried.append)
    sweep(tmp_path / "package")
    assert not tried


def test_a_package_that_was_put_aside_comes_back(tmp_path: Path) -> None:
    """Between the two renames of a replacement nothing is in its place."""
    aside = tmp_path / ".package.abc.old"
    (aside / "package").mkdir(parents=True)
    (aside / "package" / "package.json").write_text("{}")
    os.utime(aside, (0, 0))
    sweep(tmp_path / "package")
    assert (tmp_path / "package" / "package.json").read_text() == "{}"
    assert not aside.exists()
