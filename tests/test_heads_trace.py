"""Step graphs against their heads: whole, in pieces behind a past, module by module."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from export.heads import layouts
from export.heads.attention import CausalAttention
from export.heads.eagle3 import Eagle3
from export.heads.medusa import Medusa, MedusaShape
from export.heads.mtp import Mtp
from export.heads.trace import trace_head
from export.heads.trace_medusa import trace_medusa
from tests.head_checkpoints import (
    DRAFT_IDS,
    HIDDEN,
    KV_HEADS,
    MEDUSA,
    STEPPING,
    VOCABULARY,
    make_facts,
)

TOKENS, CAPACITY, TOLERANCE = 9, 24, 2e-4


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class Steps:
    """Runs a step graph; K/V buffers are kept between runs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._session = session(model)
        self._buffers: dict[str, NDArray[Any]] = {
            value.name: np.zeros((1, KV_HEADS, CAPACITY, value.shape[3]), np.float32)
            for value in self._session.get_inputs()
            if value.name.startswith("past.")
        }
        self.layers = sorted({int(name.split(".")[1]) for name in self._buffers})

    def run(
        self, ids: list[int], states: Tensor, past: int, wanted: list[int]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Logits of the wanted entries, and the next states of all."""
        names = [output.name for output in self._session.get_outputs()]
        feeds = {
            "input_ids": np.array([ids], np.int64),
            "states": states.numpy(),
            "logits_index": np.array(wanted, np.int64),
            "position_ids": np.arange(past, past + len(ids), dtype=np.int64)[None],
            "seqlens_k.0": np.array([past + len(ids) - 1], np.int32),
            "total_length.0": np.array(past + len(ids), np.int32),
            **self._buffers,
        }
        results = dict(zip(names, self._session.run(None, feeds), strict=True))
        for name in self._buffers:
            self._buffers[name] = results[name.replace("past.", "present.")]
        return results["logits"], results["next_states"]


def read(layout: str, directory: Path) -> layouts.Head:
    head, _ = layouts.read({**STEPPING, **MEDUSA}[layout]().save(directory), make_facts())
    return head


@pytest.mark.parametrize("layout", sorted(STEPPING.keys() - {"eagle3-pickled", "eagle3-numbered"}))
def test_a_step_graph_computes_what_the_head_does(layout: str, tmp_path: Path) -> None:
    head = read(layout, tmp_path)
    assert not isinstance(head, Medusa)
    step = trace_head(head)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    width = 3 * HIDDEN if isinstance(head, Eagle3) else HIDDEN
    features = torch.randn(TOKENS, width, generator=generator)
    entered = head.enter(features)
    if step.entry is not None:
        (states,) = session(step.entry).run(None, {"features": features.numpy()})
        assert np.abs(states - entered.numpy()).max() < TOLERANCE
    else:
        assert torch.equal(entered, features)
    for module, model in enumerate((step.model, *step.later)):
        attention = CausalAttention()
        expected = head.step(
            head.embed(ids[None]), entered[None], attention, torch.arange(TOKENS), module
        )[0]
        logits = head.logits(expected, module=module).numpy()
        graph = Steps(model)
        assert graph.layers == sorted(attention.cache)
        past = 0
        for count in (4, 1, 3, 1):  # a chunk, a lone token, another chunk: all behind a past
            begin, past = past, past + count
            part = slice(begin, past)
            wanted = [count - 1, 0]
            found, following = graph.run(ids[part].tolist(), entered[part], begin, wanted)
            assert np.abs(following - expected[part].numpy()).max() < TOLERANCE
            assert found.shape == (2, logits.shape[1])
            assert np.abs(found - logits[part][wanted]).max() < TOLERANCE


def test_graphs_are_canonical(tmp_path: Path) -> None:
    """Packed q, k, v; merged gate and up; no shape arithmetic; weights called by what they are."""
    head = read("deepseek", tmp_path)
    assert isinstance(head, Mtp)
    model = trace_head(head).model
    kinds = Counter(node.op_type for node in model.graph.node)
    assert kinds["MatMul"] == 6
    assert kinds["GroupQueryAttention"] == kinds["QuickGelu"] == 1
    assert not kinds.keys() & {"Shape", "Transpose", "Identity", "Constant", "Gemm", "Sigmoid"}
    names = {tensor.name for tensor in model.graph.initializer}
    layer = {f"layers.0.{name}" for name in ("qkv", "o", "gate_up", "down", "attention_norm")}
    assert names >= layer | {"fc", "enorm", "hnorm", "final_norm", "lm_head", "embedding"}
    inputs = [value.name for value in model.graph.input]
    assert inputs[:6] == [
        "input_ids",
        "states",
        "logits_index",
        "position_ids",
        "seqlens_k.0",
        "total_length.0",
    ]
    assert inputs[6:] == ["past.0.0.key", "past.0.0.value"]
    outputs = [value.name for value in model.graph.output]
    assert outputs == ["logits", "next_states", "present.0.0.key", "present.0.0.value"]


def test_the_draft_vocabulary_and_the_entry_are_eagle3s(tmp_path: Path) -> None:
    reduced = trace_head(_stepping("eagle3", tmp_path / "reduced"))
    assert reduced.ids is not None
    assert reduced.ids.tolist() == list(DRAFT_IDS)
    assert reduced.entry is not None
    whole = trace_head(_stepping("eagle3-named-layers", tmp_path / "whole"))
    assert whole.ids is None
    other = trace_head(_stepping("eagle", tmp_path / "other"))
    assert (other.ids, other.entry, other.later) == (None, None, ())


def test_modules_share_only_what_is_the_same(tmp_path: Path) -> None:
    """Weights of several modules go into one file: a name means one tensor."""
    step = trace_head(_stepping("mimo-three-modules", tmp_path))
    assert len(step.later) == 2
    known: dict[str, bytes] = {}
    for model in (step.model, *step.later):
        for tensor in model.graph.initializer:
            assert known.setdefault(tensor.name, tensor.raw_data) == tensor.raw_data
    assert {"fc", "modules.1.fc", "modules.2.fc", "layers.2.qkv", "lm_head"} <= known.keys()


def test_a_traced_head_is_as_it_was(tmp_path: Path) -> None:
    head = _stepping("eagle3", tmp_path)
    ids, states = torch.tensor([[4, 7]]), torch.randn(1, 2, HIDDEN)
    before = head.step(head.embed(ids), states, CausalAttention(), torch.arange(2))
    trace_head(head)
    after = head.step(head.embed(ids), states, CausalAttention(), torch.arange(2))
    assert torch.equal(before, after)


@pytest.mark.parametrize("layout", sorted(MEDUSA))
def test_the_graph_of_medusa_heads(layout: str, tmp_path: Path) -> None:
    head = read(layout, tmp_path)
    assert isinstance(head, Medusa)
    model = trace_medusa(head)
    feature = torch.randn(1, HIDDEN, generator=torch.Generator().manual_seed(2))
    values, ids, logsumexp = session(model).run(None, {"features": feature.numpy()})
    logits = head(feature[0])
    best = logits.topk(64)
    assert np.abs(values - best.values.numpy()).max() < TOLERANCE
    assert ids.tolist() == best.indices.tolist()
    assert np.abs(logsumexp - logits.logsumexp(-1).numpy()).max() < TOLERANCE
    linears = [node for node in model.graph.node if node.op_type == "MatMul"]
    shared = 1 if layout == "medusa-shared" else 3
    assert len(linears) == 3 * head.shape.layers + shared
    assert len({node.input[1] for node in linears}) == len(linears)
    assert {node.input[1] for node in linears} >= {"heads.0.0", "heads.2.0"}


def _stepping(layout: str, directory: Path) -> Any:
    head = read(layout, directory)
    assert not isinstance(head, Medusa)
    return head


def test_medusa_heads_before_training_have_a_weight_each() -> None:
    """Their blocks are zeros, all of them equal: tracing takes them for one tensor."""
    facts = make_facts()
    heads = Medusa(MedusaShape(HIDDEN, VOCABULARY, heads=3), facts.lm_head)
    model = trace_medusa(heads)
    names = {tensor.name for tensor in model.graph.initializer}
    assert {f"heads.{head}.0" for head in range(3)} <= names
    (ids,) = session(model).run(["top_ids"], {"features": np.ones((1, HIDDEN), np.float32)})
    best = int((facts.lm_head @ torch.ones(HIDDEN)).argmax())
    assert ids[:, 0].tolist() == [best] * 3
