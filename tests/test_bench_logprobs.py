"""Log-probabilities: the comparison itself, and the tiny package against its own checkpoint."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import main
from bench.logprobs import Difference, _not_fp32
from bench.transformers_reference import TransformersReference, find_reference
from export.checkpoint import load_checkpoint
from export.sources import DEMO_CHECKPOINT, Source, locate, weights_sha256
from gateway.engine.requests import TokenLogprob
from models.errors import UserError
from models.package import TargetSpec, load_package
from tests.checkpoints import make_checkpoint
from tests.test_export_checkpoint import write_gguf


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tiny package was exported from: the same weights every time."""
    return make_checkpoint(tmp_path_factory.mktemp("reference"), "llama")


@pytest.fixture
def spec(tiny_package: Path) -> TargetSpec:
    return load_package(tiny_package).manifest.target


def test_a_difference_keeps_the_largest_of_tokens_and_of_ranks() -> None:
    row = np.log(np.array([0.4, 0.3, 0.15, 0.1, 0.04, 0.01]))
    exact = [(token, float(row[token])) for token in range(5)]
    found = Difference("prompt")
    found.enter([TokenLogprob(5, float(row[5]) + 0.25, tuple(exact))], row[None])
    assert found.tokens == 1
    assert found.largest == pytest.approx(0.25)
    assert found.mean == pytest.approx(0.25)
    assert found.top_largest == pytest.approx(0)
    # A likely token left out is found by its rank, though every entry is right of itself.
    missing = (*exact[:1], *exact[2:], (5, float(row[5])))
    found.enter([TokenLogprob(0, float(row[0]), missing)], row[None])
    assert found.top_largest == pytest.approx(row[1] - row[2], abs=1) or found.top_largest > 0.5


def test_rows_must_match_the_tokens() -> None:
    with pytest.raises(AssertionError):
        Difference("prompt").enter([TokenLogprob(0, 0.0)], np.zeros((2, 6)))


def test_the_tiny_package_says_what_transformers_says(
    tiny_package: Path, checkpoint: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    prompts = tmp_path / "prompts.jsonl"
    texts = ["the cat and the hat and the cat", "over and over and over and over"]
    prompts.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in texts))
    arguments = ["--package", str(tiny_package), "--prompts", str(prompts), "--json", str(file)]
    reference = ["--reference-checkpoint", str(checkpoint)]
    assert main(["logprobs", *arguments, *reference, "--max-tokens", "16"]) == 0
    report = json.loads(file.read_text())
    differences = {item["kind"]: item for item in report["figures"]["differences"]}
    assert differences.keys() == {"prompt", "greedy", "temperature 1"}
    assert all(item["tokens"] >= 2 for item in differences.values())
    assert all(item["largest"] <= 1e-3 for item in differences.values())
    assert all(item["top_largest"] <= 1e-3 for item in differences.values())


def test_another_checkpoint_is_not_what_the_package_says(
    tiny_package: Path, tmp_path: Path, checkpoint: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    other = tmp_path / "other"
    other.mkdir()
    for source in checkpoint.iterdir():
        (other / source.name).write_bytes(source.read_bytes())
    (weights,) = other.glob("*.safetensors")
    changed = {name: value * np.float32(1.05) for name, value in load_file(weights).items()}
    save_file(changed, weights, metadata={"format": "pt"})
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"turns": ["the cat and the hat"]}\n')
    arguments = ["--package", str(tiny_package), "--prompts", str(prompts)]
    assert main(["logprobs", *arguments, "--reference-checkpoint", str(other)]) == 1


def test_a_checkpoint_that_is_not_there_is_a_usage_error(tmp_path: Path, spec: TargetSpec) -> None:
    with pytest.raises(UserError, match=r"config\.json"):
        find_reference(tmp_path, spec)
    # A name that the export would take for a hub id is not fetched.
    with pytest.raises(UserError, match="does not exist") as raised:
        find_reference(Path("someone/something"), spec)
    assert raised.value.param == "reference_checkpoint"
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UserError, match="has no tokenizer"):
        TransformersReference(find_reference(tmp_path, spec), None)


def test_padding_is_not_in_the_reference(checkpoint: Path) -> None:
    reference = TransformersReference(locate(str(checkpoint)), None)
    narrow = reference.logprobs((1, 2, 3), 50)
    assert narrow.shape == (2, 50)
    assert np.exp(narrow).sum(axis=1) == pytest.approx([1, 1])
    with pytest.raises(UserError, match="another checkpoint"):
        reference.logprobs((1, 2, 3), 10**6)


def test_a_gguf_file_is_read_as_the_export_reads_it(tmp_path: Path, spec: TargetSpec) -> None:
    directory = make_checkpoint(tmp_path / "qwen", "qwen2")
    file = tmp_path / "qwen.gguf"
    write_gguf(load_checkpoint(locate(str(directory)), "qwen2"), file)
    ids = (5, 9, 11, 40)
    packed, plain = (
        TransformersReference(find_reference(path, spec), 1).logprobs(ids, 50)
        for path in (file, directory)
    )
    assert packed == pytest.approx(plain, abs=1e-5)


def test_without_a_checkpoint_the_cached_file_of_the_package_is_taken(
    tmp_path: Path, spec: TargetSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    files = [tmp_path / "sources" / name / "model.gguf" for name in ("another", "demo")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_bytes(file.parent.name.encode())
    digest = weights_sha256(Source("demo", "", files[1].parent, files[1].name))
    made = dataclasses.replace(spec, checkpoint="demo", revision="r", sha256=digest)
    assert find_reference(None, made) == Source("demo", "r", files[1].parent, "model.gguf")
    files[1].unlink()
    with pytest.raises(UserError, match=r"give --reference-checkpoint: .* of demo") as raised:
        find_reference(None, made)
    assert raised.value.code == "reference_missing"


def test_without_torch_it_says_what_to_install(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"torch is not installed; `pip install outpace\[export\]"):
        TransformersReference(locate(str(checkpoint)), None)


def test_a_package_that_is_not_fp32_is_told_how_to_make_one(spec: TargetSpec) -> None:
    demo = dataclasses.replace(spec, checkpoint=DEMO_CHECKPOINT, weight_type="w8a8")
    text = _not_fp32(demo)
    assert text.startswith("the package is w8a8")
    assert "`python -m export --demo --dtype fp32 --out DIR`" in text
    other = dataclasses.replace(demo, checkpoint="other")
    assert "export --target CHECKPOINT --dtype fp32" in _not_fp32(other)
