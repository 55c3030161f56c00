"""`python -m export train` end to end on the tiny package, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from export.checkpoint import inspect_source, load_checkpoint
from export.heads import layouts
from export.heads.facts import target_facts
from export.sources import locate
from export.training.command import main
from export.training.corpus import Corpus
from export.training.generation import Goal, write_corpus
from export.training.trainer import Trainer
from models.package import Package, load_package
from tests.checkpoints import make_checkpoint

Arguments = Callable[[Path, str], list[str]]
UPDATES = 6


@pytest.fixture(scope="module", autouse=True)
def _brief() -> Iterator[None]:
    """Training ends here behind so many updates: by the clock a slow machine would make fewer."""
    run = Trainer.run

    def brief(self: Trainer, stop: Callable[[], bool], report: Callable[[str], None]) -> None:
        last = self.progress.updates + UPDATES
        run(self, lambda: stop() or self.progress.updates >= last, report)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", brief)
        yield


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
        *("--kind", kind, "--tokens", "1000", "--minutes", "10", "--threads", "1"),
        *("--draft-vocab", "100"),
    ]


@pytest.fixture
def arguments(tiny_package: Path, source: Path) -> Arguments:
    """Of a training in the given directory, of the given kind."""
    return partial(_arguments, tiny_package, source)


@pytest.mark.parametrize("kind", ["eagle3", "mtp", "medusa", "draft"])
def test_a_head_of_each_kind_is_trained(
    work: Path, source: Path, arguments: Arguments, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind != "eagle3":
        assert main(arguments(work, kind)) == 0
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


def test_a_package_with_drafters_gets_another(
    drafting: Package, source: Path, work: Path, tmp_path: Path
) -> None:
    """All of it: text, features, training."""
    shutil.copytree(work / "corpus", tmp_path / "corpus")
    before = Corpus(tmp_path / "corpus").answer_tokens
    arguments = _arguments(drafting.path, source, tmp_path, "medusa")
    more = ("--tokens", str(before + 100))
    assert main([*arguments, *more]) == 0
    made = json.loads((tmp_path / "medusa-head" / "config.json").read_text())["training"]
    assert Corpus(tmp_path / "corpus").answer_tokens > before
    assert made["updates"] > 0


def test_it_goes_on_where_it_was(work: Path, arguments: Arguments) -> None:
    before = json.loads((work / "eagle3-head" / "config.json").read_text())["training"]
    shards = sorted(path.name for path in (work / "corpus").iterdir())
    assert main(arguments(work, "eagle3")) == 0
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
    "option",
    [
        *(("--minutes", value) for value in ("0", "nan", "inf", "-1")),
        ("--tokens", "0"),
        ("--draft-vocab", "2"),
        *(("--threads", value) for value in ("0", "100000")),
        *(("--seed", value) for value in ("-1", "9" * 30)),
        *((name, "") for name in ("--work", "--out", "--target", "--prompts")),
    ],
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


def test_a_device_that_is_not_there_is_said_first(
    arguments: Arguments, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    given = arguments(tmp_path / "work", "mtp")
    assert main([*given, "--device", "cuda"]) == 1
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("taken", ["source", "package"])
def test_nothing_but_a_trained_head_is_written_over(
    work: Path,
    tiny_package: Path,
    source: Path,
    arguments: Arguments,
    taken: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    shutil.copytree(source if taken == "source" else tiny_package, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main([*arguments(work, "mtp"), "--out", str(out)]) == 1
    printed = capsys.readouterr().err
    assert f"error: --out {out} holds a " in printed
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_trained_head_is_written_over(work: Path, arguments: Arguments, tmp_path: Path) -> None:
    shutil.copytree(work / "eagle3-head", tmp_path / "out")
    given = arguments(work, "eagle3")
    assert main([*given, "--out", str(tmp_path / "out")]) == 0


def test_a_directory_is_of_one_target(
    work: Path,
    arguments: Arguments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = tmp_path / "work"
    theirs.mkdir()
    note = theirs / "target.json"
    note.write_text(json.dumps({"checkpoint": "theirs", "sha256": "5" * 64}))
    assert main(arguments(theirs, "mtp")) == 1
    assert f"--work {theirs} is a training for theirs (SHA-256 555555555555)" in (
        capsys.readouterr().err
    )
    assert not (theirs / "corpus").exists()
    note.write_text("{")
    assert main(arguments(theirs, "mtp")) == 1
    assert f"{note} cannot be used" in capsys.readouterr().err


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _of_another_text(path: Path) -> None:
    for array in path.iterdir():
        np.save(array, np.load(array)[:-1])


@pytest.mark.parametrize(
    ("harmed", "harm", "words"),
    [
        ("corpus/shard-00000-000000.npz", _halve, "what features has of it"),
        ("eagle3/checkpoint.pt", _halve, "remove it"),
        ("eagle3/checkpoint.pt", lambda path: torch.save({"x": 1}, path), "it has no 'average'"),
        ("eagle3/sizes.npy", _halve, "to begin anew"),
        ("features/shard-00000-000000/features.npy", _halve, "it is made again"),
        ("features/shard-00000-000000/top_ids.npy", _halve, "it is made again"),
        ("features/shard-00000-000000", _of_another_text, "it is made again"),
    ],
)
def test_damage_is_said_by_name(
    work: Path,
    arguments: Arguments,
    harmed: str,
    harm: Callable[[Path], None],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(work, tmp_path / "work")
    harm(tmp_path / "work" / harmed)
    assert main(arguments(tmp_path / "work", "eagle3")) == 1
    printed = capsys.readouterr().err
    damaged = Path(tmp_path, "work", *harmed.split("/")[:2])
    assert printed.startswith(f"error: {damaged} cannot")
    assert words in printed
    assert len(printed.splitlines()) == 1


def test_features_without_their_text(
    work: Path,
    arguments: Arguments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(work, tmp_path / "work")
    orphan = tmp_path / "work" / "features" / "shard-00009-000000"
    shutil.copytree(tmp_path / "work" / "features" / "shard-00000-000000", orphan)
    assert main(arguments(tmp_path / "work", "eagle3")) == 1
    assert f"{orphan} cannot be used (there is no" in capsys.readouterr().err


def test_no_time_to_learn_is_said(
    work: Path,
    arguments: Arguments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing was learned of this kind, so there is nothing to write."""
    shutil.copytree(work, tmp_path / "work", ignore=shutil.ignore_patterns("eagle3*", "m*"))
    given = arguments(tmp_path / "work", "eagle3")
    assert main([*given, "--minutes", "0.0001"]) == 1
    assert "no time left to learn" in capsys.readouterr().err
