"""What follows the last attention, for the last token alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from export.last_row import only_last
from export.lowering import lower
from tests.step_graphs import Runner, Sizes, head_step, lengths, model_step

IDS = [5, 250, 31, 77, 140, 9, 201]


@pytest.mark.parametrize("kind", ["head", "layers", "integers", "model"])
def test_the_last_token_comes_out_as_among_all(kind: str) -> None:
    step = {
        "head": head_step,
        "layers": lambda: head_step(Sizes(layers=3)),
        "integers": lambda: lower(head_step(), "cpu", form="u8u8"),
        "model": model_step,
    }[kind]()
    whole, cut = Runner(step.model), Runner(only_last(step.model))
    states = np.random.default_rng(1).standard_normal((len(IDS), 16)).astype(np.float32)
    feeds = {
        "input_ids": np.array([IDS]),
        "states": states,
        "logits_index": np.array([len(IDS) - 1]),
        **lengths("", 0, len(IDS)),
    }
    expected = whole.run(feeds)
    found = cut.run(feeds | {"logits_index": np.array([-1])})
    assert found["logits"].shape == (1, expected["logits"].shape[1])
    assert np.allclose(found["logits"], expected["logits"], atol=1e-5)
    if kind != "model":
        assert found["next_states"].shape == (1, 16)
        assert np.allclose(found["next_states"], expected["next_states"][-1:], atol=1e-5)
    for name, buffer in whole.buffers.items():
        assert np.array_equal(cut.buffers[name], buffer), name
        assert buffer[:, :, : len(IDS)].all(-1).all(), name


def test_what_is_read_is_left_as_it_was() -> None:
    model = head_step().model
    before = model.SerializeToString()
    assert only_last(model) is not model
    assert model.SerializeToString() == before


def test_a_graph_with_an_unknown_operator_stays_whole() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(head_step().model)
    for node in model.graph.node:
        if node.op_type == "Unsqueeze":
            node.op_type = "Stranger"
    assert only_last(model) is model
