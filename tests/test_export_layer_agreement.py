"""How often some layers agree with the whole target, against drafting one token after another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from export.checkpoint import Checkpoint, inspect_source, load_checkpoint
from export.decoder import trace_decoder
from export.layer_agreement import Agreement, StoredTarget, write_drafted
from export.layer_search import choose_layers, costs_of
from export.passes import canonicalise
from export.quantization import CalibrationContext
from export.quantization.answers import Answer
from export.rows import derive_rows
from export.runner import GraphRunner, RowStep
from export.self_speculative import keep_layers, parse_layers
from export.sources import locate
from export.writer import externalise, save_graph
from models.errors import UserError
from tests.checkpoints import make_checkpoint

LAYERS, USELESS = 4, 2
CONTEXT = 128
QUESTIONS = ("the cat", "a dog in the house", "on the other hand", "it is")


def load(directory: Path, architecture: str) -> Checkpoint:
    overrides = {"num_hidden_layers": LAYERS}
    source = locate(str(make_checkpoint(directory, architecture, **overrides)))
    return load_checkpoint(source, inspect_source(source))


def store(checkpoint: Checkpoint, directory: Path) -> StoredTarget:
    traced = trace_decoder(checkpoint.model, checkpoint.architecture, CONTEXT, directory)
    weights = directory / "target.weights"
    return StoredTarget(externalise(canonicalise(traced), weights), directory, CONTEXT)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Of its four layers one adds nothing to the stream."""
    checkpoint = load(tmp_path_factory.mktemp("agreement") / "checkpoint", "llama")
    layer = checkpoint.model.get_decoder().layers[USELESS]
    with torch.no_grad():
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    return checkpoint


@pytest.fixture(scope="module")
def target(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> StoredTarget:
    return store(checkpoint, tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def answers(checkpoint: Checkpoint, target: StoredTarget) -> list[Answer]:
    context = CalibrationContext(checkpoint.encode, checkpoint.renderer(), 1, ())
    found = write_drafted(target, QUESTIONS, context)
    # Ends at different places, as answers do.
    return [
        Answer(answer.prompt, answer.ids[: 20 + 7 * place]) for place, answer in enumerate(found)
    ]


@pytest.fixture(scope="module")
def judge(target: StoredTarget, answers: Sequence[Answer]) -> Agreement:
    return Agreement(target, answers)


def runner(target: StoredTarget, kept: Sequence[int], directory: Path) -> GraphRunner:
    path = directory / f"kept{''.join(map(str, kept))}.onnx"
    model = keep_layers(target.single, kept).model
    (directory / "target.weights").unlink(missing_ok=True)
    (directory / "target.weights").hardlink_to(target.directory / "target.weights")
    save_graph(derive_rows(model, 1), path)
    return GraphRunner(path, capacity=CONTEXT)


def one_by_one(
    target: StoredTarget,
    answers: Sequence[Answer],
    kept: Sequence[int],
    depth: int,
    directory: Path,
) -> tuple[float, ...]:
    """The same by drafting as the gateway does: text run by the whole target, then the drafts."""
    whole = runner(target, range(LAYERS), directory)
    drafter = runner(target, kept, directory)
    right, drafts = np.zeros(depth), 0
    for answer in answers:
        ids = answer.all_ids
        for place in answer.predicting:
            if place + depth >= len(ids):
                continue
            whole.run([RowStep(ids[:place])], [])
            for number, layer in enumerate(kept):
                for part in ("key", "value"):
                    contents = whole.buffers[f"past.{layer}.0.{part}"].numpy()
                    drafter.buffers[f"past.{number}.0.{part}"].update_inplace(contents)
            token, good, drafts = ids[place], True, drafts + 1
            for step in range(depth):
                logits = drafter.run([RowStep((token,), place + step)])["logits"]
                token = int(logits[0].argmax())
                good = good and token == ids[place + step + 1]
                right[step] += good
    return tuple(float(share) for share in right / drafts)


def test_the_target_answers_greedily(
    target: StoredTarget, answers: Sequence[Answer], checkpoint: Checkpoint
) -> None:
    for answer in answers:
        with torch.no_grad():
            logits = checkpoint.model(torch.tensor([answer.all_ids])).logits[0]
        predicting = answer.predicting
        assert logits.argmax(-1)[predicting.start : predicting.stop].tolist() == list(answer.ids)


def test_prompts_are_spread_and_their_answers_bounded(
    target: StoredTarget, checkpoint: Checkpoint
) -> None:
    context = CalibrationContext(checkpoint.encode, None, 1, ())
    questions = [f"the {number}" for number in range(40)] + ["a " * 500]
    written = write_drafted(target, questions, context)
    assert len(written) == 16
    assert written[1].prompt == (1, *checkpoint.encode("the 2"))
    assert all(len(answer.ids) == CONTEXT // 4 for answer in written)
    (long,) = write_drafted(target, questions[-1:], context)
    assert long.prompt == (1, *checkpoint.encode("a " * 500))[-CONTEXT // 4 :]


def test_all_layers_always_agree(judge: Agreement) -> None:
    assert judge(tuple(range(LAYERS))) == 1.0
    assert judge.survival(range(LAYERS), 5) == (1.0,) * 5


@pytest.mark.parametrize("kept", [(0, 1, 3), (0, 2, 3), (1, 2, 3), (0, 1)])
def test_agreement_is_that_of_drafting_one_by_one(
    judge: Agreement,
    target: StoredTarget,
    answers: Sequence[Answer],
    kept: tuple[int, ...],
    tmp_path: Path,
) -> None:
    depth = 3
    wanted = one_by_one(target, answers, kept, depth, tmp_path)
    assert judge.survival(kept, depth) == pytest.approx(wanted, abs=0.02)
    assert judge(kept) == pytest.approx(wanted[0], abs=0.04)


def test_a_useless_layer_is_found(judge: Agreement, target: StoredTarget) -> None:
    without = tuple(layer for layer in range(LAYERS) if layer != USELESS)
    assert judge(without) == 1.0
    assert judge.survival(without, 4) == (1.0,) * 4
    others = [tuple(k for k in range(LAYERS) if k != layer) for layer in (0, 1, 3)]
    assert max(judge(kept) for kept in others) < 0.9
    costs = costs_of(target.single, "w8a8")
    choice = parse_layers("3", LAYERS)
    found = choose_layers(choice, judge, costs, lambda _: None)
    assert found.chosen.kept == without
    assert choose_layers(parse_layers("auto", LAYERS), judge, costs, lambda _: None) == (
        choose_layers(parse_layers("auto", LAYERS), judge, costs, lambda _: None)
    )


def test_judging_leaves_nothing_behind(
    judge: Agreement, target: StoredTarget, answers: Sequence[Answer]
) -> None:
    """Neither files nor K/V that a later set would read."""
    before = {name: buffer.numpy().copy() for name, buffer in judge.buffers.items()}
    first = judge.survival((0, 3), 4)
    judge((1,))
    assert judge.survival((0, 3), 4) == first
    for name, buffer in judge.buffers.items():
        row = int(name.split(".")[2])
        known = len(answers[row].all_ids)
        assert (buffer.numpy()[:, :, :known] == before[name][:, :, :known]).all()
    assert sorted(p.name for p in target.directory.glob("*.onnx")) == ["traced.onnx"]


def test_a_window_narrower_than_what_lies_side_by_side_is_refused(tmp_path: Path) -> None:
    target = store(load(tmp_path / "checkpoint", "mistral"), tmp_path)
    with pytest.raises(UserError) as refused:
        Agreement(target, [Answer((1, 5), (7, 8, 9))])
    assert refused.value.param == "--self-speculative"
    assert "a sliding window of 8 tokens" in refused.value.message
