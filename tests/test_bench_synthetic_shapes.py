"""Random weights of any shape: what a shape is, and that a deeper package is a deeper model."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from bench.synthetic.deepening import deepen
from bench.synthetic.random_checkpoint import SPECIAL, tokenizer_of
from bench.synthetic.shapes import RANDOM, Shape, package_of
from bench.synthetic.widening import widen
from export.runner import GraphRunner, RowStep
from models.errors import UserError
from models.locations import default_package_path
from models.package import load_package, write_manifest

TOKENS = (5, 9, 40, 7)


@pytest.fixture
def deep(tiny_package: Path, tmp_path: Path) -> Path:
    path = tmp_path / "deep"
    shutil.copytree(tiny_package, path)
    deepen(path, 5)
    return path


def test_a_deeper_package_is_valid_and_says_so(tiny_package: Path, deep: Path) -> None:
    before, after = load_package(tiny_package).manifest, load_package(deep).manifest
    assert (before.target.layers, after.target.layers) == (2, 5)
    assert after.settings["repeated_layers"] == "4"
    assert after.parity == after.quality == {}
    assert after.files["target.weights"].bytes > before.files["target.weights"].bytes


def test_its_graphs_have_every_layer_with_weights_of_its_own(deep: Path) -> None:
    for path in deep.glob("target*.onnx"):
        graph = onnx.load(str(path), load_external_data=False).graph
        attention = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
        rows = int(path.stem.rpartition("r")[2])
        assert len(attention) == 5 * rows
        assert sum(port.name.startswith("past.") for port in graph.input) == 5 * rows * 2
        assert sum(port.name.startswith("present.") for port in graph.output) == 5 * rows * 2
        offsets = [
            entry.value
            for tensor in graph.initializer
            for entry in tensor.external_data
            if entry.key == "offset"
        ]
        assert len(set(offsets)) == len(offsets), "no two layers share memory"


def test_its_layers_count(tiny_package: Path, deep: Path) -> None:
    def logits(path: Path) -> np.ndarray:
        runner = GraphRunner(path / "target.r1.onnx", capacity=16)
        return np.asarray(runner.run([RowStep(TOKENS)])["logits"])

    shallow, found = logits(tiny_package), logits(deep)
    assert found.shape == shallow.shape
    assert np.isfinite(found).all()
    assert np.abs(found - shallow).max() > 1e-2


def test_named_shapes_and_packages(tiny_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert package_of("demo") == default_package_path()
    assert package_of(str(tiny_package)) == tiny_package
    names = {Shape(name, config).package.name for name, config in RANDOM.items()}
    assert {name.rpartition("-")[0] for name in names} == {"random-0.5b", "random-1b"}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("no json", "is none of demo, 0.5b, 1b"),
        ('{"vocab_size": 5}', "is none of demo, 0.5b, 1b"),
        ('{"model_type": "gemma2", "num_hidden_layers": 4}', "takes llama, mistral"),
        ('{"model_type": "llama", "num_hidden_layers": 1}', "of 2 layers or more"),
        (
            '{"model_type": "llama", "num_hidden_layers": 2, "vocab_size": 9}',
            "more than 259 tokens",
        ),
    ],
)
def test_other_shapes_are_refused(tmp_path: Path, config: str, problem: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(UserError, match=problem):
        package_of(str(tmp_path))


def test_a_package_that_is_cached_is_not_made_again(
    tiny_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    place = Shape("1b", RANDOM["1b"]).package
    place.parent.mkdir(parents=True)
    shutil.copytree(tiny_package, place)
    manifest = load_package(place).manifest
    write_manifest(place, dataclasses.replace(manifest, name="kept"))
    assert load_package(package_of("1b")).manifest.name == "kept"


def test_the_tokenizer_knows_every_id_and_every_text() -> None:
    tokenizer = tokenizer_of(400)
    assert len(tokenizer) == 400
    ids = tokenizer.encode("Über 3 a", add_special_tokens=False)
    assert tokenizer.decode(ids) == "Über 3 a"
    assert max(ids) < len(SPECIAL) + 256


def test_a_wider_package_says_what_it_said_and_its_repetitions(
    tiny_package: Path, tmp_path: Path
) -> None:
    path = tmp_path / "wide"
    shutil.copytree(tiny_package, path)
    widen(path, 700)
    before, after = load_package(tiny_package).manifest, load_package(path).manifest
    assert after.target.vocab_size == 700
    assert after.settings["repeated_tokens"] == str(700 - before.target.vocab_size)
    shallow, found = (
        np.asarray(
            GraphRunner(place / "target.r1.onnx", capacity=16).run([RowStep(TOKENS)])["logits"]
        )
        for place in (tiny_package, path)
    )
    assert found.shape == (len(TOKENS), 700)
    repeated = np.take(shallow, np.arange(700) % before.target.vocab_size, axis=1)
    np.testing.assert_allclose(found, repeated, atol=1e-4)
