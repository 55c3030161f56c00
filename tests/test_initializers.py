"""Weights read from a graph's own bytes, and shared by sessions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from export.writer import externalise, save_graph
from models.errors import UserError
from models.initializers import SharedWeights, external_tensors
from models.package import Package
from models.providers import select_provider
from models.session import Session
from models.target import Target
from tests.device_support import played

ARRAYS = {
    "half": np.linspace(-1, 1, 900, dtype=np.float16).reshape(30, 30),
    "whole": np.arange(2000, dtype=np.int64),
    "bytes": np.arange(4096, dtype=np.uint8).reshape(2, 2, 1024),
    "small": np.array([3], dtype=np.int64),
}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    tensors = [numpy_helper.from_array(values, name) for name, values in ARRAYS.items()]
    bfloat = helper.make_tensor("bfloat", onnx.TensorProto.BFLOAT16, (1200,), bytes(2400), raw=True)
    model = helper.make_model(helper.make_graph([], "holder", [], [], [*tensors, bfloat]))
    save_graph(externalise(model, tmp_path / "weights"), tmp_path / "graph.onnx")
    return tmp_path / "graph.onnx"


def test_external_tensors_are_found_as_onnx_reads_them(graph: Path) -> None:
    found = {each.name: each for each in external_tensors(graph)}
    assert sorted(found) == ["bytes", "half", "whole"], "neither inline nor of a type unknown here"
    for name, tensor in found.items():
        values = tensor.read(graph.parent)
        assert values.dtype == ARRAYS[name].dtype
        assert np.array_equal(values, ARRAYS[name])


def test_one_place_of_a_file_is_placed_once(graph: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(graph.read_bytes())
    shared = SharedWeights(played())
    first, second = shared.of(graph), shared.of(other)
    assert first.keys() == second.keys()
    assert all(first[name] is second[name] for name in first)
    assert shared.bytes == sum(ARRAYS[name].nbytes for name in first)
    assert np.array_equal(first["half"].numpy(), ARRAYS["half"])


def test_a_session_reads_the_shared_weights(package: Package) -> None:
    """Changed in place they change what it says: it has no copy of its own of the embedding."""
    target = Target(package, played())
    assert target.weights is not None
    spec = package.manifest.target
    names = {each.name for each in external_tensors(package.file(spec.graphs["1"]))}
    for rows in package.row_counts:
        own = external_tensors(package.file(spec.graphs[str(rows)]))
        assert {each.name for each in own} == names
    assert target.weights.bytes == pytest.approx(
        package.manifest.files[spec.weights].bytes, rel=0.1
    )


def test_the_host_shares_nothing(package: Package) -> None:
    """There every session packs the mapped file anew for its kernels."""
    assert Target(package, select_provider("cpu", "cpu")).weights is None


Way = tuple[bool, bool]


@pytest.mark.parametrize(
    ("broken", "used"),
    [
        (set[Way](), (True, True)),
        ({(True, True)}, (True, False)),
        ({(True, True), (True, False)}, (False, True)),
        ({(True, True), (True, False), (False, True)}, (False, False)),
    ],
)
def test_what_onnx_runtime_does_not_do_is_done_without_and_said(
    package: Package, monkeypatch: pytest.MonkeyPatch, broken: set[Way], used: Way
) -> None:
    """(captures, shared weights)."""
    make, last = Session._make, list[Way]()

    def refusing(self: Session, graph: Path, *, capture: bool, share: bool) -> object:
        last.append((capture, share))
        if last[-1] in broken:
            raise RuntimeError("there are memcpy nodes")
        return make(self, graph, capture=capture, share=share)

    monkeypatch.setattr(Session, "_make", refusing)
    path = package.file(package.manifest.target.graphs["1"])
    session = Session(path, played(), capture=True, weights=SharedWeights(played()))
    assert last[-1] == used
    assert session.capturing is used[0]
    refused = session.captures.counts.refused
    assert len(refused) == len(broken)
    if broken:
        assert refused[0] == (
            "target.r1.onnx with captures and shared weights: there are memcpy nodes"
        )


def test_a_graph_that_loads_in_no_way_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "target.r1.onnx"
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"cannot load target\.r1\.onnx on cuda"):
        Session(path, played(), capture=True, weights=SharedWeights(played()))
