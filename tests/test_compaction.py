"""Compaction: an accepted path moves together, on the host and by the package's graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from export.compact import check_compact, compact_graph
from export.writer import save_graph
from models.compaction import DeviceCompaction, compact_host, moves
from models.errors import UserError
from models.package import load_package
from models.providers import load_onnxruntime, select_provider
from models.slots import Slot

CAPACITY, START = 20, 6
PATHS = [(0,), (0, 1, 2), (0, 3), (0, 2, 3, 7), (2, 5, 6, 9, 13), (0, 1, 2, 4, 5), ()]


def random_slot(layers: int, kv_heads: int, head_dim: int, kind: type[Any]) -> Slot:
    random = np.random.default_rng(3)
    make = load_onnxruntime().OrtValue.ortvalue_from_numpy
    shape = (1, kv_heads, CAPACITY, head_dim)
    pairs = [
        tuple(make(random.standard_normal(shape).astype(kind)) for _ in range(2))
        for _ in range(layers)
    ]
    return Slot(0, CAPACITY, pairs)  # type: ignore[arg-type]


def arrays(slot: Slot) -> list[NDArray[Any]]:
    return [buffer.numpy().copy() for pair in slot.buffers for buffer in pair]


def moved_one_by_one(before: NDArray[Any], path: tuple[int, ...]) -> NDArray[Any]:
    after = before.copy()
    for position, source in enumerate(path):
        after[0, :, START + position] = before[0, :, START + source]
    return after


def check(before: list[NDArray[Any]], slot: Slot, path: tuple[int, ...]) -> None:
    for old, new in zip(before, arrays(slot), strict=True):
        assert new.tobytes() == moved_one_by_one(old, path).tobytes()


@pytest.mark.parametrize("path", PATHS)
def test_the_path_moves_and_nothing_else(path: tuple[int, ...]) -> None:
    slot = random_slot(2, 3, 4, np.float32)
    before = arrays(slot)
    compact_host(slot, START, path)
    check(before, slot, path)


@pytest.fixture(scope="module", params=[np.float32, np.float16])
def graph(
    request: pytest.FixtureRequest, tiny_package: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, type[Any]]:
    """The graph of a package for a device, with the tiny model's buffers."""
    package = load_package(tiny_package)
    single = onnx.load(package.file("target.r1.onnx"), load_external_data=False)
    if request.param is np.float16:
        for value in (*single.graph.input, *single.graph.output):
            if value.name.startswith(("past.", "present.")):
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    path = tmp_path_factory.mktemp("compact") / "target.compact.onnx"
    save_graph(compact_graph(single), path)
    return path, request.param


@pytest.mark.parametrize("path", PATHS)
def test_the_graph_moves_the_same_in_place(
    graph: tuple[Path, type[Any]], path: tuple[int, ...], tiny_package: Path
) -> None:
    spec = load_package(tiny_package).manifest.target
    compact = DeviceCompaction(graph[0], select_provider("cpu", "cpu"))
    slots = [random_slot(spec.layers, spec.kv_heads, spec.head_dim, graph[1]) for _ in range(2)]
    for slot in slots:
        before = arrays(slot)
        compact(slot, START, path)
        check(before, slot, path)
        for again in PATHS:
            before = arrays(slot)
            compact(slot, START, again)
            check(before, slot, again)


def test_the_export_notices_a_graph_that_moves_something_else(
    graph: tuple[Path, type[Any]], tmp_path: Path
) -> None:
    check_compact(graph[0])
    model = onnx.load(graph[0])
    scatters = [node for node in model.graph.node if node.op_type == "ScatterND"]
    scatters[1].input[2] = scatters[0].input[2]  # a value's tokens from its key's
    save_graph(model, tmp_path / "wrong.onnx")
    with pytest.raises(UserError, match="compacts K/V moves something else"):
        check_compact(tmp_path / "wrong.onnx")


def test_only_what_must_move_is_moved() -> None:
    sources, destinations = moves((0, 1, 4, 5))
    assert (sources.tolist(), destinations.tolist()) == ([4, 5], [2, 3])
    for path in ((0, 2, 2), (3, 1)):
        with pytest.raises(AssertionError, match="a path rises"):
            moves(path)
