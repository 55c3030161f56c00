"""Sessions: bindings that are kept, providers that are what was asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models import session as session_module
from models.errors import UserError
from models.package import Package, load_package
from models.processor import processor_count
from models.providers import Provider, select_provider
from models.session import Binding, Session, share_threads

CPU = select_provider("cpu", "cpu")


@pytest.fixture
def package(tiny_package: Path) -> Package:
    return load_package(tiny_package)


@pytest.fixture
def binding(package: Package) -> Binding:
    return Session(package.file(package.manifest.target.graphs["1"]), CPU).binding()


def test_the_graphs_have_the_inputs_and_outputs_of_the_contract(package: Package) -> None:
    spec = package.manifest.target
    for rows in package.row_counts:
        session = Session(package.file(spec.graphs[str(rows)]), CPU)
        kv = [
            f"{layer}.{row}.{kind}"
            for layer in range(spec.layers)
            for row in range(rows)
            for kind in ("key", "value")
        ]
        lengths = {f"{name}.{row}" for name in ("seqlens_k", "total_length") for row in range(rows)}
        packing = {f"{name}.{row}" for name in ("row_index", "position_ids") for row in range(rows)}
        packing = {"position_ids"} if rows == 1 else packing | {"unpack_index"}
        past = {f"past.{name}" for name in kv}
        inputs = {"input_ids", "logits_index"} | lengths | packing | past
        assert set(session.input_names) == inputs
        tree = Session(package.file(spec.tree_graphs[str(rows)]), CPU)
        assert set(tree.input_names) == inputs | {f"attention_bias.{row}" for row in range(rows)}
        assert tree.output_names == session.output_names
        wanted = ["logits", "top_values", "top_ids", "logsumexp"]
        assert session.output_names[:4] == wanted
        assert set(session.output_names[4:]) == {f"present.{name}" for name in kv}


def test_an_output_array_is_kept_while_its_shape_is(binding: Binding) -> None:
    first = binding.collect("logsumexp", (2,), np.float32)
    assert binding.collect("logsumexp", (2,), np.float32) is first
    second = binding.collect("logsumexp", (3,), np.float32)
    assert second is not first
    assert second.shape == (3,)
    assert second.dtype == np.float32


def test_a_fed_array_is_copied(binding: Binding) -> None:
    """The caller's array may change between feeding and running."""
    values = np.array([[1, 2]], dtype=np.int64)
    binding.feed("input_ids", values)
    values[...] = 9
    assert binding._arrays["input_ids"].tolist() == [[1, 2]]
    kept = binding._arrays["input_ids"]
    binding.feed("input_ids", np.array([[3, 4]], dtype=np.int64))
    assert binding._arrays["input_ids"] is kept
    assert kept.tolist() == [[3, 4]]


def test_a_graph_that_does_not_load_is_named(tmp_path: Path) -> None:
    graph = tmp_path / "target.r1.onnx"
    graph.write_bytes(b"no graph at all")
    with pytest.raises(UserError, match=r"target\.r1\.onnx") as refused:
        Session(graph, CPU)
    assert (refused.value.code, refused.value.param) == ("graph_invalid", "target.r1.onnx")


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_another_provider_than_the_one_asked_for_is_an_error(package: Package) -> None:
    """ONNX Runtime itself warns and takes the CPU."""
    absent = Provider("tensorrt", ("NvTensorRTRTXExecutionProvider",), "cuda")
    with pytest.raises(UserError) as refused:
        Session(package.file(package.manifest.target.graphs["1"]), absent)
    assert refused.value.code in ("device_unavailable", "graph_invalid")
    assert "target.r1.onnx" in refused.value.message


def test_the_first_session_decides_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []

    class Runtime:
        @staticmethod
        def set_global_thread_pool_sizes(intra: int, inter: int) -> None:
            sizes.append((intra, inter))

    monkeypatch.setattr(session_module, "_pools", {})
    monkeypatch.setattr(session_module, "load_onnxruntime", lambda: Runtime)
    assert share_threads(3) == 3
    assert share_threads(5) == 3
    assert share_threads(None) == 3
    assert sizes == [(3, 1)]
    monkeypatch.setattr(session_module, "_pools", {})
    assert share_threads(None) == processor_count()
