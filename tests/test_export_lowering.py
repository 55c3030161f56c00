"""The weights of drafters' graphs, and the files that hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from export.drafter_files import EMBEDDING, write_drafter
from export.heads.step import StepGraph
from export.lowering import lower, to_integers
from export.unroll import unroll
from models.package import vocabulary_file
from tests.step_graphs import Runner, Sizes, chain_feeds, head_step, lengths, model_step

SIZES = Sizes(hidden=32, intermediate=64)
PROMPT = [1, 250, 31, 77, 140]
FLOAT, HALF, INT8 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8


def features(step: StepGraph) -> NDArray[np.float32]:
    count = SIZES.features if step.entry is not None else SIZES.hidden
    return np.random.default_rng(3).standard_normal((len(PROMPT), count)).astype(np.float32)


def logits(step: StepGraph) -> NDArray[np.float32]:
    feeds = {
        "input_ids": np.array([PROMPT]),
        "logits_index": np.arange(len(PROMPT)),
        **lengths("", 0, len(PROMPT)),
    }
    if step.entry is not None:
        feeds["states"] = Runner(step.entry).run({"features": features(step)})["states"]
    return Runner(step.model).run(feeds)["logits"]


@pytest.mark.parametrize(("form", "levels"), [("u8u8", 63), ("u8s8", 127)])
def test_integer_steps_are_near_the_fp32_ones(form: str, levels: int) -> None:
    step = head_step(SIZES)
    lowered = lower(step, "cpu", form=form)
    kinds = {tensor.name: tensor for tensor in lowered.model.graph.initializer}
    for name in ("layers.0.qkv", "layers.0.down", "lm_head"):
        assert name not in kinds
        assert kinds[f"{name}/values"].data_type == INT8
        values = numpy_helper.to_array(kinds[f"{name}/values"])
        assert (np.abs(values.astype(int)).max(0) == levels).all()
    assert kinds["embedding/values"].data_type == INT8
    assert lowered.entry is step.entry
    if form == "u8u8":  # the other is exact on some processors only
        exact, found = logits(step), logits(lowered)
        assert np.abs(found - exact).mean() < 0.05 * exact.std()


def test_seven_bits_do_not_saturate() -> None:
    """Largest inputs times largest weights, of one sign: 16 bits hold a pair of them."""
    rows, columns = 96, 32
    weight = numpy_helper.from_array(np.full((rows, columns), 0.5, np.float32), "w")
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"], name="y")],
            "linear",
            [helper.make_tensor_value_info("x", FLOAT, ["m", rows])],
            [helper.make_tensor_value_info("y", FLOAT, ["m", columns])],
            [weight],
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
    )
    model.ir_version = 10
    runner = Runner(to_integers(model, 63))
    for count in (1, 2, 5):
        x = np.full((count, rows), 3.0, np.float32)
        x[-1] = -3.0
        assert np.allclose(runner.run({"x": x})["y"], x @ np.full((rows, columns), 0.5), rtol=1e-5)


def test_layers_on_two_dimensions_are_products_too() -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((24, 48)).astype(np.float32)
    bias = random.standard_normal(24).astype(np.float32)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="y", transB=1)],
            "linear",
            [helper.make_tensor_value_info("x", FLOAT, ["m", 48])],
            [helper.make_tensor_value_info("y", FLOAT, ["m", 24])],
            [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
    )
    model.ir_version = 10
    lowered = to_integers(model, 63)
    assert "MatMulIntegerToFloat" in {node.op_type for node in lowered.graph.node}
    x = random.standard_normal((5, 48)).astype(np.float32)
    found = Runner(lowered).run({"x": x})["y"]
    assert np.abs(found - (x @ weight.T + bias)).mean() < 0.1


def test_half_precision_is_near_fp32_and_keeps_fp32_logits() -> None:
    step = head_step(SIZES)
    half = lower(step, "cuda")
    values = (*half.model.graph.input, *half.model.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    assert types["logits"] == FLOAT
    assert types["states"] == types["next_states"] == types["present.0.0.key"] == HALF
    kinds = {tensor.name: tensor.data_type for tensor in half.model.graph.initializer}
    assert kinds["lm_head"] == kinds["embedding"] == kinds["cos"] == HALF
    assert half.entry is not None
    assert half.entry.graph.initializer[0].data_type == HALF
    exact, found = logits(step), logits(half)
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < 0.05 * exact.std()
    steps = chain_feeds(PROMPT, features(step), 0, 3, SIZES.drafted)
    near = Runner(unroll(half, 3)).run(steps)["top_values"]
    assert np.allclose(near[0], Runner(unroll(step, 3)).run(steps)["top_values"][0], atol=0.1)


@pytest.mark.parametrize("kind", ["integers", "fp32", "modules", "model"])
def test_written_graphs_draft_what_those_in_memory_do(tmp_path: Path, kind: str) -> None:
    step = {
        "integers": lambda: lower(head_step(SIZES), "cpu", form="u8u8"),
        "fp32": lambda: head_step(SIZES),
        "modules": lambda: lower(head_step(SIZES, modules=2), "cpu", form="u8u8"),
        "model": lambda: lower(model_step(), "cpu", form="u8u8"),
    }[kind]()
    depths = () if step.later else (1, 3)
    files = write_drafter(tmp_path, "eagle3", step, steps=(1, 3), depths=depths, width=2)
    assert files.graphs == {"1": "eagle3.k1.onnx", "3": "eagle3.k3.onnx"}
    assert files.tree_graphs == {str(d): f"eagle3.tree.d{d}.onnx" for d in depths}
    assert files.weights == ("eagle3.weights", EMBEDDING)
    named = {*files.graphs.values(), *files.tree_graphs.values(), *files.weights}
    if step.ids is not None:
        named.add(vocabulary_file("eagle3"))
        assert np.array_equal(np.load(tmp_path / vocabulary_file("eagle3")), step.ids)
    assert {path.name for path in tmp_path.iterdir()} == named
    drafted = SIZES.vocabulary if step.ids is None else SIZES.drafted
    given = None if kind == "model" else features(step)
    for count, name in files.graphs.items():
        feeds = chain_feeds(PROMPT, given, 0, int(count), drafted)
        expected = Runner(unroll(step, int(count))).run(feeds)
        for output, values in Runner(tmp_path / name).run(feeds).items():
            assert np.array_equal(values, expected[output]), output
        assert (tmp_path / name).stat().st_size < 60_000, "weights are in the graph"
    for name in files.tree_graphs.values():
        Runner(tmp_path / name)


def test_drafters_share_the_embeddings_they_have_in_common(tmp_path: Path) -> None:
    own = Sizes(hidden=32, intermediate=64, seed=5)
    first, second = (lower(head_step(SIZES), "cpu", form="u8u8") for _ in range(2))
    third = lower(head_step(own), "cpu", form="u8u8")
    assert EMBEDDING in write_drafter(tmp_path, "eagle3", first, steps=(2,)).weights
    before = (tmp_path / EMBEDDING).read_bytes()
    assert EMBEDDING in write_drafter(tmp_path, "mtp", second, steps=(2,)).weights
    assert write_drafter(tmp_path, "eagle", third, steps=(2,)).weights == ("eagle.weights",)
    assert (tmp_path / EMBEDDING).read_bytes() == before
    sizes = {name: (tmp_path / f"{name}.weights").stat().st_size for name in ("eagle3", "eagle")}
    assert sizes["eagle"] > sizes["eagle3"]
    feeds = chain_feeds(PROMPT, features(third), 0, 2, SIZES.drafted)
    found, expected = Runner(tmp_path / "eagle.k2.onnx"), Runner(unroll(third, 2))
    assert np.array_equal(found.run(feeds)["top_values"], expected.run(feeds)["top_values"])


def test_what_is_lowered_is_left_as_it_was() -> None:
    step = head_step(SIZES)
    before = step.model.SerializeToString()
    for device in ("cpu", "cuda"):
        assert lower(step, device, form="u8u8").model.SerializeToString() != before
        assert step.model.SerializeToString() == before


def test_only_tensors_over_a_kibibyte_go_to_the_weights_file(tmp_path: Path) -> None:
    write_drafter(tmp_path, "eagle3", head_step(SIZES), steps=(1,))
    graph = onnx.load(str(tmp_path / "eagle3.k1.onnx"), load_external_data=False).graph
    outside = {t.name for t in graph.initializer if t.data_location == TensorProto.EXTERNAL}
    assert {"embedding", "lm_head", "layers.0.down"} <= outside
    assert "final_norm" not in outside
