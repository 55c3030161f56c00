"""What a package takes of a GPU: counted by what is there, shared, copied, bounded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.engine.loading import load
from gateway.engine.options import EngineOptions
from models import memory
from models.errors import UserError
from models.gpu_memory import engine_count, graphs_in_use, weight_bytes, work_bytes
from models.initializers import SharedWeights
from models.memory import (
    drafter_weight_bytes,
    feature_bytes,
    memory_need,
    require_drafter_memory,
    require_memory,
    require_tree_memory,
    slot_bytes,
    tree_bytes,
    why_unknown,
)
from models.nvml import FreeMemory
from models.package import DrafterSpec, Package
from models.providers import WIDTHS, DeviceOptions
from models.target import Target
from tests.device_support import for_device, played

OWN = DeviceOptions(share_weights=False)


def of(package: Package, device: str = "cuda", **fields: object) -> Package:
    """As if it had been exported for a GPU."""
    target = dataclasses.replace(package.manifest.target, device=device, **fields)  # type: ignore[arg-type]
    return dataclasses.replace(
        package, manifest=dataclasses.replace(package.manifest, target=target)
    )


@pytest.fixture(scope="module")
def on_cuda(drafting: Package, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return of(for_device(drafting, tmp_path_factory.mktemp("gpu") / "package"))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> FreeGpu:
    """Of a host that has nothing left."""
    found = FreeGpu()
    monkeypatch.setattr(memory, "available_bytes", lambda: 0)
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(found.bytes, found.why))
    return found


class FreeGpu:
    bytes: int | None = None
    why = "nobody asked"


def weights(package: Package) -> int:
    return package.manifest.files[package.manifest.target.weights].bytes


def test_shared_weights_are_there_once(on_cuda: Package) -> None:
    size = weights(on_cuda)
    assert memory_need(on_cuda, 4, 64, 16).weights == size
    assert memory_need(on_cuda, 4, 64, 16, OWN).weights == size * len(on_cuda.row_counts)
    host = memory_need(of(on_cuda, "cpu"), 4, 64, 16)
    assert host.weights == size * (1 + len(on_cuda.row_counts)), "where kernels prepack them"
    assert not host.gpu


def test_that_is_what_sessions_place_there(on_cuda: Package) -> None:
    """All but the scalars that lie in the graphs themselves."""
    placed = Target(on_cuda, played()).weights
    assert isinstance(placed, SharedWeights)
    assert placed.bytes == pytest.approx(weight_bytes(on_cuda, 4, DeviceOptions()), rel=0.05)


@pytest.mark.parametrize(
    ("weight_type", "gemm", "copies"),
    [("int4", "fpa-intb", 4), ("int8", "fpa-intb", 4), ("int4", "default", 1), ("fp16", "auto", 1)],
)
def test_products_that_rearrange_weights_copy_them_in_each_graph(
    on_cuda: Package, weight_type: str, gemm: str, copies: int
) -> None:
    package = of(on_cuda, weight_type=weight_type)
    assert len(package.row_counts) == 3
    found = weight_bytes(package, 4, DeviceOptions(gemm=gemm))
    assert found == copies * weights(package)


def test_slots_features_and_drafters_lie_there_too(on_cuda: Package) -> None:
    spec = on_cuda.manifest.target
    need, host = memory_need(on_cuda, 3, 64, 16), memory_need(of(on_cuda, "cpu"), 3, 64, 16)
    assert need.gpu
    spare = max(WIDTHS)
    assert need.kv == 3 * slot_bytes(spec, 64) + slot_bytes(spec, spare)
    assert need.features == 3 * feature_bytes(spec, 64) + feature_bytes(spec, spare)
    assert need.drafters == host.drafters > 0
    assert "of the GPU's memory (weights" in need.describe()


def test_work_is_that_of_each_graph_and_bounded_where_that_is_set(on_cuda: Package) -> None:
    free_of_bounds = work_bytes(on_cuda, 4, 64, 256, DeviceOptions())
    one = work_bytes(on_cuda, 1, 64, 256, DeviceOptions())
    assert free_of_bounds > one, "one slot needs the graph for one row alone"
    assert work_bytes(on_cuda, 4, 64, 512, DeviceOptions()) > free_of_bounds
    assert work_bytes(on_cuda, 4, 1 << 20, 256, DeviceOptions()) == free_of_bounds, "no scores"
    huge = of(on_cuda, hidden_size=1 << 20)
    bounded = work_bytes(huge, 4, 64, 256, DeviceOptions(memory_mib=64))
    logits = max(64, 4 * max(WIDTHS)) * huge.manifest.target.vocab_size * 4
    assert bounded == logits + 3 * (64 << 20)


def test_each_tensorrt_engine_has_its_own_weights(on_cuda: Package) -> None:
    package = of(on_cuda, "tensorrt")
    assert package.row_counts == (1, 2, 4)
    engines = 3 * len(WIDTHS) + 3
    assert engine_count((1, 2, 4), 4, DeviceOptions()) == engines
    assert engine_count((1, 2, 4), 3, DeviceOptions()) == engines, "three rows run as four"
    assert engine_count((1, 2, 4), 2, DeviceOptions()) == 2 * len(WIDTHS) + 2
    assert engine_count((1, 2, 4), 1, DeviceOptions(strict_width=8)) == 1 + 1
    need = memory_need(package, 4, 64, 16)
    assert need.weights == engines * weights(package)
    assert need.kv == 5 * slot_bytes(package.manifest.target, 64), "the spare slot is as large"


@pytest.mark.parametrize(
    ("slots", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 4]), (4, [1, 2, 4]), (9, [1, 2, 4])]
)
def test_graphs_in_use_are_those_that_so_many_slots_fill(slots: int, expected: list[int]) -> None:
    assert graphs_in_use((4, 1, 2), slots) == expected


def test_it_is_compared_with_what_is_free_there(on_cuda: Package, free: FreeGpu) -> None:
    """And not with the host's memory, of which there is none here."""
    need = memory_need(on_cuda, 2, 64, 16)
    free.bytes = need.total
    require_memory(need)
    assert why_unknown(need) is None
    free.bytes = need.total - 1
    with pytest.raises(UserError, match="of the GPU's memory is free") as refused:
        require_memory(need)
    assert refused.value.code == "out_of_memory"
    free.bytes = None
    require_memory(need)
    assert why_unknown(need) == ("How much of the GPU's memory is free is not known: nobody asked.")


def spec_of(package: Package, kind: str) -> DrafterSpec:
    return next(spec for spec in package.manifest.drafters if spec.kind == kind)


def sizes(package: Package, spec: DrafterSpec) -> Mapping[str, int]:
    return {name: package.manifest.files[name].bytes for name in spec.weights}


def test_drafters_and_trees_are_compared_with_it_too(on_cuda: Package, free: FreeGpu) -> None:
    head = spec_of(on_cuda, "eagle3")
    shared = drafter_weight_bytes(on_cuda, head)
    target = on_cuda.manifest.target.weights
    assert shared == sum(size for name, size in sizes(on_cuda, head).items() if name != target)
    graphs = len(head.graphs) + len(head.tree_graphs)
    own = drafter_weight_bytes(on_cuda, head, OWN)
    assert own == graphs * sum(sizes(on_cuda, head).values())
    free.bytes = shared
    require_drafter_memory(on_cuda, head)
    with pytest.raises(UserError, match="the drafter eagle3 needs"):
        require_drafter_memory(on_cuda, head, OWN)
    free.bytes = 0
    assert tree_bytes(on_cuda) == 0
    require_tree_memory(on_cuda)
    assert tree_bytes(on_cuda, OWN) == len(on_cuda.row_counts) * weights(on_cuda)
    with pytest.raises(UserError, match="drafts that branch need"):
        require_tree_memory(on_cuda, OWN)


def test_a_start_says_what_it_cannot_know_and_goes_on(
    drafting: Package, free: FreeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    package = of(for_device(drafting, tmp_path / "package"))
    lines: list[str] = []
    options = EngineOptions(context=64, slots=1)
    loaded = load(package, options, lines.append, provider=played())
    assert loaded.memory.gpu
    assert any(line.endswith("nobody asked. It is not checked.") for line in lines)
    free.bytes = 1 << 10
    with pytest.raises(UserError, match="only 0 MiB of the GPU's memory is free"):
        load(package, options, lines.append, provider=played())
    forced = dataclasses.replace(options, check_memory=False, check_parts=False)
    load(package, forced, lines.append, provider=played())


def test_a_bound_below_the_weights_that_it_covers_is_refused(
    drafting: Package, tmp_path: Path
) -> None:
    package = of(for_device(drafting, tmp_path / "package"))
    target = package.manifest.target
    files = dict(package.manifest.files)
    files[target.weights] = dataclasses.replace(files[target.weights], bytes=65 << 20)
    manifest = dataclasses.replace(package.manifest, files=files)
    options = EngineOptions(gpu_memory_mib=64, gpu_share_weights=False)
    provider = played(options.device_use)
    with pytest.raises(UserError, match="share them, or allow more") as refused:
        load(dataclasses.replace(package, manifest=manifest), options, str, provider=provider)
    assert (refused.value.code, refused.value.param) == ("invalid_setting", "gpu_memory_mib")
