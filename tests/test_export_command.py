"""`python -m export` as it is typed: a package from a checkpoint, and each refusal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers

from export import __main__ as command
from export.runner import GraphRunner, RowStep
from models.errors import UserError
from models.package import load_package
from models.providers import Provider
from models.rows import Row
from models.target import Target
from tests.checkpoints import CHAT_TEMPLATE, VOCABULARY, make_checkpoint
from tests.device_support import played

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("command") / "Tiny-Llama")


def export(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


def test_a_package_from_a_directory(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "package"
    options = ("--dtype", "fp32", "--rows", "1,2", "--context", 64)
    assert export("--target", checkpoint, "--out", out, *options) == 0
    printed = capsys.readouterr().out
    assert "checking parity with torch ... " in printed
    assert "max_abs" in printed
    package = load_package(out)
    target = package.manifest.target
    assert package.manifest.name == "tiny-llama"
    assert package.row_counts == (1, 2)
    assert target.tree_graphs == {"1": "target.tree.r1.onnx", "2": "target.tree.r2.onnx"}
    assert target.compact_graph is None
    assert (target.layers, target.heads, target.kv_heads, target.head_dim) == (2, 4, 2, 16)
    assert (target.vocab_size, target.context_length, target.top_k) == (300, 64, 64)
    assert target.eos_ids == (2,)
    assert package.manifest.special_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
    }
    assert package.manifest.parity["max_abs"] < 1e-3
    assert package.manifest.parity["argmax_agreement"] == 1.0
    assert package.manifest.parity["rows_max_abs"] == 0.0
    assert package.manifest.parity["tree_zero_bias_max_abs"] == 0.0
    assert package.manifest.parity["tree_max_abs"] < 1e-4
    assert package.file("chat_template.jinja").read_text() == CHAT_TEMPLATE
    assert sorted(package.manifest.files) == sorted(
        path.name for path in out.iterdir() if path.name != "package.json"
    )


def test_greedy_output_of_the_tiny_checkpoint_varies(checkpoint: Path, tmp_path: Path) -> None:
    """Tests of the engine rely on it: a model that repeats one token would hide mistakes."""
    out = tmp_path / "package"
    assert export("--target", checkpoint, "--out", out, "--dtype", "fp32", "--rows", "1") == 0
    runner = GraphRunner(out / "target.r1.onnx", capacity=128)
    tokens = [10, 20, 30, 40]
    while len(tokens) < 68:
        logits = runner.run([RowStep(tokens)], wanted=[len(tokens) - 1])["logits"]
        tokens.append(int(np.argmax(logits[0])))
    assert len(set(tokens[4:])) >= 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rows", "2,4"], "contains 1"),
        (["--rows", "1,3"], "contains 1"),
        (["--rows", "x"], "contains 1"),
        (["--dtype", "fp16"], "the CPU kernels compute in fp32"),
        (["--dtype", "w8a8", "--device", "cuda"], "CUDA has no kernels"),
        (["--dtype", "int4", "--device", "tensorrt"], "in half precision; use fp16"),
        (["--device", "tensorrt", "--self-speculative"], "written in other operators"),
        (["--dtype", "fp32", "--context", "257"], "made for 1 to 256 tokens"),
        (["--dtype", "fp32", "--context", "0"], "made for 1 to 256 tokens"),
    ],
)
def test_options_that_cannot_be_are_refused(
    checkpoint: Path,
    tmp_path: Path,
    options: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "package"
    assert export("--target", checkpoint, "--out", out, *options) == 1
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.startswith("error: ")
    assert len(printed.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_existing_output_is_refused(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "keep").write_text("mine")
    assert export("--target", checkpoint, "--out", tmp_path, "--dtype", "fp32") == 1
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "keep").read_text() == "mine"


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("/proc/package", "cannot write /proc/package"),
        ("~nobody-here/package", "--out ~nobody-here/package names the home of a user"),
        ("x" * 300, "File name too long"),
    ],
)
def test_places_that_can_hold_nothing_are_refused(
    checkpoint: Path, out: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export("--target", checkpoint, "--out", out, "--dtype", "fp32") == 1
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.splitlines()) == 1


def test_a_package_for_a_device_moves_its_kv_there(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "package"
    options = ("--device", "cuda", "--rows", "1,2", "--context", 64)
    assert export("--target", checkpoint, "--out", out, *options) == 0
    package = load_package(out)
    assert package.manifest.target.compact_graph == "target.compact.onnx"
    assert package.manifest.parity["tree_zero_bias_max_abs"] == 0.0
    types = {
        value.name: value.type.tensor_type.elem_type
        for name in ("target.tree.r2.onnx", "target.compact.onnx")
        for value in onnx.load(out / name, load_external_data=False).graph.input
    }
    half = onnx.TensorProto.FLOAT16
    assert types["attention_bias.1"] == types["past.1.1.value"] == types["past.0.0.key"] == half


def test_a_package_for_tensorrt_is_in_its_own_operators(checkpoint: Path, tmp_path: Path) -> None:
    """It says what the one for CUDA says, both played by the processor."""
    results = []
    for device, provider in (
        ("cuda", played()),
        ("tensorrt", Provider("tensorrt", ("CPUExecutionProvider",), "cpu")),
    ):
        out = tmp_path / device
        options = ("--device", device, "--rows", "1", "--context", 64)
        assert export("--target", checkpoint, "--out", out, *options) == 0
        target = Target(load_package(out), provider)
        (slot,) = target.make_slots(1, 64)
        for begin, end in ((0, 20), (20, 24)):
            ids = tuple(range(40 + begin, 40 + end))
            (result,) = target.run([Row(slot, ids, logits=4)])
            slot.commit(ids)
        results.append(result)
    spec = load_package(tmp_path / "tensorrt").manifest.target
    assert (spec.device, spec.kv_type, spec.weight_type) == ("tensorrt", "fp16", "fp16")
    assert spec.tree_graphs == {}
    graph = onnx.load(tmp_path / "tensorrt" / "target.r1.onnx", load_external_data=False).graph
    assert {node.domain for node in graph.node} == {""}
    assert {node.op_type for node in graph.node}.isdisjoint(("Attention", "TensorScatter"))
    contrib, standard = results
    np.testing.assert_allclose(standard.top_values, contrib.top_values, atol=0.05)
    assert standard.greedy == contrib.greedy


def test_ids_that_only_pad_have_no_logits(tmp_path: Path) -> None:
    """Also where the head shares the embedding's weights, whose rows all stay."""
    path = make_checkpoint(tmp_path / "padded", "qwen3", vocab_size=320)
    out = tmp_path / "package"
    assert export("--target", path, "--out", out, "--dtype", "fp32", "--rows", "1") == 0
    assert load_package(out).manifest.target.vocab_size == VOCABULARY
    runner = GraphRunner(out / "target.r1.onnx", capacity=16)
    logits = runner.run([RowStep([10, 310, 20])])["logits"]
    assert logits.shape == (3, VOCABULARY)
    model = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
    with torch.no_grad():
        expected = model(torch.tensor([[10, 310, 20]])).logits[0].numpy()
    assert expected.shape == (3, 320)
    np.testing.assert_allclose(logits, expected[:, :VOCABULARY], atol=1e-4)


def test_an_unknown_flag_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        export("--dmo")
    assert capsys.readouterr().err.startswith(
        "python -m export: there is no flag --dmo. Did you mean --demo?"
    )


def test_target_needs_out(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export("--target", checkpoint) == 1
    assert "--out" in capsys.readouterr().err


def test_a_wrong_graph_is_not_written(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from export import pipeline

    canonicalise = pipeline.canonicalise

    def damaged(model: object) -> object:
        graph = canonicalise(model)  # type: ignore[arg-type]
        norm = next(t for t in graph.graph.initializer if t.name == "layers.1.mlp_norm")
        values = np.frombuffer(norm.raw_data, np.float32) * np.float32(1.05)
        norm.raw_data = values.tobytes()
        return graph

    monkeypatch.setattr(pipeline, "canonicalise", damaged)
    out = tmp_path / "package"
    assert export("--target", checkpoint, "--out", out, "--dtype", "fp32") == 1
    assert "parity failed" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def run(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "export", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupted_export_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    process = run("--target", checkpoint, "--out", tmp_path / "package", "--dtype", "fp32")
    assert process.stdout is not None
    seen = ""
    while "tracing" not in seen:
        piece = process.stdout.read(1)
        assert piece, f"ended early: {seen}"
        seen += piece
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted: nothing was written" in errors
    assert not list(tmp_path.iterdir())


def test_a_valid_demo_package_is_kept_without_torch(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from export import options, sources

    out = tmp_path / "packages" / "smollm2-135m-instruct"
    monkeypatch.setattr(options, "_DEMO_HEADS", tmp_path / "none for this checkpoint")
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    name = sources.DEMO_CHECKPOINT
    monkeypatch.setattr(sources, "demo", lambda: sources.Source(name, "", checkpoint))
    assert export("--demo", "--dtype", "fp32") == 0
    before = (out / "package.json").stat().st_mtime_ns

    code = "import sys, export.__main__ as m; status = m.main(sys.argv[1:]); "
    code += "sys.exit(status or 'torch' in sys.modules)"
    again = subprocess.run(
        [sys.executable, "-c", code, "--demo", "--dtype", "fp32"],
        cwd=ROOT,
        env={**os.environ, "OUTPACE_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert "valid and up to date" in again.stdout
    assert (out / "package.json").stat().st_mtime_ns == before

    with monkeypatch.context() as changed:
        changed.setattr("export.__main__.recipe", lambda: "of other code")
        capsys.readouterr()
        assert export("--demo", "--dtype", "fp32") == 0
    told = capsys.readouterr().out.splitlines()[0]
    assert told.startswith(f"{out} is built anew: how the export tells its parts apart has changed")
    made_by_other_code = load_package(out)
    assert made_by_other_code.manifest.settings["recipe"] == "of other code"

    with (out / "tokenizer.json").open("a") as stream:
        stream.write(" ")
    with pytest.raises(UserError):
        load_package(out)
    assert export("--demo", "--dtype", "fp32") == 0
    assert load_package(out).manifest.name == "smollm2-135m-instruct"


def test_train_is_a_command_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from export.training import command as training

    seen: list[list[str]] = []

    def train(arguments: Sequence[str]) -> int:
        seen.append(list(arguments))
        return 7

    monkeypatch.setattr(training, "main", train)
    assert export("train", "--target", "package", "--kind", "mtp") == 7
    assert seen == [["--target", "package", "--kind", "mtp"]]
