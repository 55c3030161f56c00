"""`python -m export train` end to end on the tiny package, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from export.checkpoint import inspect_source, load_checkpoint
from export.heads import layouts
from export.heads.facts import target_facts
from export.sources import locate
from export.training.command import main
from export.training.generation import Goal, write_corpus
from models.package import load_package
from tests.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("source"), "llama")


@pytest.fixture(scope="module")
def work(tiny_package: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where text was written without hurry, and a first head was trained."""
    work = tmp_path_factory.mktemp("work")
    goal = Goal(1500)
    write_corpus(load_package(tiny_package), work / "corpus", goal, seed=0, rows=4, report=str)
    assert main(_arguments(tiny_package, source, work, "eagle3")) == 0
    return work


def _arguments(package: Path, source: Path, work: Path, kind: str) -> list[str]:
    return [
        *("--target", str(package), "--source", str(source), "--work", str(work)),
        *("--kind", kind, "--tokens", "1000", "--minutes", "0.1", "--threads", "1"),
        *("--draft-vocab", "100"),
    ]


@pytest.mark.parametrize("kind", ["eagle3", "mtp", "medusa", "draft"])
def test_a_head_of_each_kind_is_trained(
    work: Path, tiny_package: Path, source: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind != "eagle3":
        assert main(_arguments(tiny_package, source, work, kind)) == 0
        assert "survival" in capsys.readouterr().out
    head = work / f"{kind}-head"
    made = json.loads((head / "config.json").read_text())["training"]
    assert made["command"].startswith("python -m export train --target")
    assert made["answer_tokens"] > 1000
    assert made["updates"] > 0
    assert 0 <= made["held_out"]["survival"][0] <= 1
    if kind == "draft":
        return
    place = locate(str(source))
    facts = target_facts(load_checkpoint(place, inspect_source(place)), 256)
    module, info = layouts.read(head, facts)
    assert info.kind == kind
    assert info.draft_vocab == (100 if kind == "eagle3" else facts.vocab_size)
    assert not any(parameter.isnan().any() for parameter in module.parameters())


def test_it_goes_on_where_it_was(work: Path, tiny_package: Path, source: Path) -> None:
    before = json.loads((work / "eagle3-head" / "config.json").read_text())["training"]
    shards = sorted(path.name for path in (work / "corpus").iterdir())
    assert main(_arguments(tiny_package, source, work, "eagle3")) == 0
    after = json.loads((work / "eagle3-head" / "config.json").read_text())["training"]
    assert after["updates"] > before["updates"]
    assert shards == sorted(path.name for path in (work / "corpus").iterdir())


def test_another_checkpoint_is_refused(
    tiny_package: Path, tmp_path: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_checkpoint(tmp_path, "qwen2")
    assert main(_arguments(tiny_package, other, work, "eagle3")) == 1
    assert "is not the checkpoint that the package" in capsys.readouterr().err


def test_a_package_does_not_say_where_its_checkpoint_is(
    tiny_package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--target", str(tiny_package), "--kind", "mtp", "--work", str(tmp_path)]
    assert main(arguments) == 1
    assert "--source" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [("--minutes", "0"), ("--tokens", "0"), ("--draft-vocab", "2"), ("--threads", "0")]
)
def test_numbers_out_of_range_are_refused(
    option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--target", str(tmp_path), "--kind", "mtp", *option]) == 1
    assert option[0] in capsys.readouterr().err


def test_no_time_for_text_is_said(
    tiny_package: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        *("--target", str(tiny_package), "--source", str(source), "--work", str(tmp_path)),
        *("--kind", "mtp", "--minutes", "0.0001"),
    ]
    assert main(arguments) == 1
    assert "more --minutes" in capsys.readouterr().err
