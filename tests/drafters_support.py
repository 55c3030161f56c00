"""Drafters for tests: specifications, and packages with small random ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.drafter_files import write_drafter
from export.heads.step import StepGraph
from export.writer import save_graph
from models.draft import Draft, Drafter
from models.drafters.learned import LearnedModels
from models.package import DrafterSpec, Package
from models.providers import select_provider
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.slots import Slot
from models.target import Row, Target
from tests.features_support import featured
from tests.step_graphs import Sizes, head_step, model_step

CPU = select_provider("cpu", "cpu")
WIDTH, DEPTH = 4, 3
STEPS = (1, 2, 4)
TAPS = 3 * 64
POSITIONS = 258
"""As far as the rotary tables of the tiny target go: its context and the pad."""
HEAD_SIZES = Sizes(features=TAPS, positions=POSITIONS)
MODEL_SIZES = Sizes(layers=2, positions=POSITIONS, seed=5)
SELF_SIZES = Sizes(layers=1, heads=4, kv_heads=2, positions=POSITIONS, seed=9)
HEADS, LISTED = 3, 64

HEAD = DrafterSpec(
    kind="eagle3",
    checkpoint="test",
    revision="",
    sha256="",
    longest=4,
    draft_vocab=300,
    top_k=64,
    graphs={"1": "eagle3.k1.onnx", "4": "eagle3.k4.onnx"},
    weights=(),
    reads="taps",
    tree_graphs={"4": "eagle3.tree.d4.onnx"},
    tree_width=8,
    layers=1,
    kv_heads=2,
    head_dim=16,
    lookahead=1,
)
DRAFT_MODEL = dataclasses.replace(
    HEAD,
    kind="draft-model",
    reads=None,
    graphs={"6": "draft-model.k6.onnx"},
    tree_graphs={},
    layers=3,
    lookahead=0,
)


def head() -> StepGraph:
    """Reads taps, proposes 90 of the 300 tokens."""
    return head_step(HEAD_SIZES)


def modules() -> StepGraph:
    """Two modules that read the hidden state, as MTP's do."""
    return head_step(Sizes(hidden=64, features=64, positions=POSITIONS), modules=2, entry=False)


def drafting_package(package: Package, directory: Path) -> Package:
    """`package` with a random drafter of every kind."""
    staging = directory / "drafters"
    staging.mkdir(parents=True)
    specs = [
        _stepping(staging, "eagle3", head(), HEAD_SIZES, "taps", lookahead=1),
        _stepping(staging, "draft-model", model_step(MODEL_SIZES), MODEL_SIZES, None),
        _stepping(staging, "mtp", modules(), Sizes(layers=2), "hidden", lookahead=2, trees=False),
        dataclasses.replace(
            _stepping(
                staging, "self-speculative", model_step(SELF_SIZES), SELF_SIZES, None, trees=False
            ),
            layers=0,
            kept_layers=(1,),
        ),
        _medusa(staging),
    ]
    files = {path.name: path for path in staging.iterdir()}
    return featured(package, directory / "package", drafters=tuple(specs), files=files)


def _stepping(
    staging: Path,
    kind: str,
    step: StepGraph,
    sizes: Sizes,
    reads: str | None,
    *,
    lookahead: int = 0,
    trees: bool = True,
) -> DrafterSpec:
    written = write_drafter(
        staging, kind, step, steps=STEPS, depths=(1, DEPTH) if trees else (), width=WIDTH
    )
    return DrafterSpec(
        kind=kind,
        checkpoint="random",
        revision="",
        sha256="",
        longest=STEPS[-1],
        draft_vocab=sizes.vocabulary if step.ids is None else len(step.ids),
        top_k=min(LISTED, sizes.vocabulary if step.ids is None else len(step.ids)),
        graphs=written.graphs,
        weights=written.weights,
        reads=reads,
        tree_graphs=written.tree_graphs,
        tree_width=WIDTH if trees else 0,
        layers=sizes.layers,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        lookahead=lookahead,
    )


def medusa_weights() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[64, heads * 300]."""
    random = np.random.default_rng(4)
    return (random.standard_normal((64, HEADS * 300)) * 0.2).astype(np.float32)


def _medusa(staging: Path) -> DrafterSpec:
    value, make = helper.make_tensor_value_info, helper.make_node
    constants = {
        "weights": medusa_weights(),
        "shape": np.array([HEADS, 300]),
        "count": np.array([LISTED]),
        "axis": np.array([-1]),
    }
    nodes = [
        make("MatMul", ["features", "weights"], ["flat"]),
        make("Reshape", ["flat", "shape"], ["logits"]),
        make("TopK", ["logits", "count"], ["top_values", "top_ids"], axis=-1),
        make("ReduceLogSumExp", ["logits", "axis"], ["logsumexp"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "medusa",
        [value("features", TensorProto.FLOAT, [1, 64])],
        [
            value("top_values", TensorProto.FLOAT, [HEADS, LISTED]),
            value("top_ids", TensorProto.INT64, [HEADS, LISTED]),
            value("logsumexp", TensorProto.FLOAT, [HEADS]),
        ],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    save_graph(model, staging / "medusa.onnx")
    return DrafterSpec(
        kind="medusa",
        checkpoint="random",
        revision="",
        sha256="",
        longest=HEADS,
        draft_vocab=300,
        top_k=LISTED,
        graphs={str(HEADS): "medusa.onnx"},
        weights=(),
        reads="hidden",
    )


class Conversation:
    """A request as the engine runs it, whose answer is the target's own greedy one.

    Every round commits as many of the drafter's tokens as are right.
    """

    def __init__(self, target: Target, slot: Slot, prompt: Sequence[int]) -> None:
        self.target, self.slot = target, slot
        self.tokens = list(prompt)
        (result,) = target.run([Row(slot, tuple(prompt[slot.length :]), logits=1)])
        slot.commit(prompt[slot.length :])
        self.tokens.append(result.greedy[0])

    def begin(self, drafter: Drafter) -> Drafter:
        drafter.reset(self.tokens[:-1])
        drafter.commit(self.tokens[-1:])
        return drafter

    def round(self, drafter: Drafter, draft: Draft) -> tuple[int, ...]:
        """Verify a chain; the tokens that the round commits."""
        assert draft.parents is None
        row = Row(self.slot, (self.tokens[-1], *draft.tokens), logits=1 + len(draft.tokens))
        (result,) = self.target.run([row])
        right = 0
        while right < len(draft.tokens) and draft.tokens[right] == result.greedy[right]:
            right += 1
        said = tuple(result.greedy[: right + 1])
        return self.say(drafter, said)

    def say(self, drafter: Drafter, said: tuple[int, ...]) -> tuple[int, ...]:
        """Commit `said`, whatever the target thinks of it: its K/V but the last's is run."""
        row = Row(self.slot, (self.tokens[-1], *said[:-1]), logits=0)
        self.target.run([row])
        self.slot.commit(row.tokens)
        drafter.commit(said)
        self.tokens += said
        return said


def make_sampler(temperature: float = 0.9, seed: int = 11, **fields: float) -> Sampler:
    return Sampler(Sampling(temperature=temperature, seed=seed, **fields), (), ())  # type: ignore[arg-type]


def load(package: Package, *kinds: str) -> LearnedModels:
    models = LearnedModels(package, CPU)
    for kind in kinds or models.kinds:
        models.load(kind)
    return models
