"""Drafters from published layouts into packages, new ones and ones that exist; each refusal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export import __main__ as command
from export.drafter_parity import Expected, check_drafts, measure_survival, shown
from export.quantization.answers import Answer
from export.runner import GraphRunner, RowStep
from export.writer import locked
from models.errors import UserError
from models.package import Package, load_package
from tests import head_checkpoints
from tests.checkpoints import VOCABULARY, make_checkpoint

LAYERS = head_checkpoints.LAYERS
SMALL = ("--dtype", "fp32", "--rows", "1,2", "--context", 128)
KINDS = {"draft-model", "medusa", "eagle", "eagle3", "mtp", "self-speculative"}


def export(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a target, a draft model, and heads in their published layouts."""
    torch.set_num_threads(1)  # a barrier of threads costs more than such models
    place = tmp_path_factory.mktemp("sources")
    make_checkpoint(place / "target", num_hidden_layers=LAYERS)
    make_checkpoint(place / "other", num_hidden_layers=LAYERS, seed=8)
    make_checkpoint(place / "draft", num_hidden_layers=1, seed=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_checkpoints, "VOCABULARY", VOCABULARY)
        patch.setitem(head_checkpoints.CONFIG, "vocab_size", VOCABULARY)
        head_checkpoints.medusa(own_head=False).save(place / "medusa")
        head_checkpoints.medusa(layers=2).save(place / "medusa-own")
        head_checkpoints.eagle().save(place / "eagle")
        head_checkpoints.eagle3().save(place / "eagle3")
        head_checkpoints.eagle3_named_layers().save(place / "eagle3-named")
        head_checkpoints.mimo(modules=2).save(place / "mtp")
        # A module inside a checkpoint has the sizes that its one config says.
        patch.setattr(head_checkpoints, "INTERMEDIATE", 96)
        head_checkpoints.deepseek().save(place / "deepseek")
    (place / "prompts.txt").write_text("What is a bee?\nName three rivers.\n")
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def packages(sources: Path) -> dict[str, Path]:
    """One with every drafter from the start, one to which they are added."""
    target = ("--target", sources / "target", *SMALL)
    every = ("--draft", sources / "draft", "--medusa", sources / "medusa")
    every += ("--eagle", sources / "eagle3", "--eagle", sources / "eagle")
    every += ("--mtp", sources / "mtp", "--self-speculative", "0-5,7-7")
    every += ("--prompts", sources / "prompts.txt")
    assert export(*target, "--out", sources / "at-once", *every) == 0
    assert export(*target, "--out", sources / "plain") == 0
    shutil.copytree(sources / "plain", sources / "extended")
    assert export("--into", sources / "extended", *every) == 0
    return {name: sources / name for name in ("at-once", "plain", "extended")}


def kinds(package: Package) -> set[str]:
    return {spec.kind for spec in package.manifest.drafters}


@pytest.mark.parametrize("name", ["at-once", "extended"])
def test_every_kind_is_made_and_checked(packages: dict[str, Path], name: str) -> None:
    package = load_package(packages[name])
    specs = {spec.kind: spec for spec in package.manifest.drafters}
    assert specs.keys() == KINDS
    for spec in specs.values():
        assert len(spec.survival) == spec.longest
        assert all(
            0 <= later <= earlier <= 1
            for earlier, later in zip(spec.survival, spec.survival[1:], strict=False)
        )
        named = {*spec.graphs.values(), *spec.tree_graphs.values(), *spec.weights}
        assert named <= package.manifest.files.keys()
        if spec.kind != "self-speculative":
            assert spec.parity["prompts"] == 20
            assert spec.parity["stored_agreement"] > 0.6
    target = package.manifest.target
    assert target.features == {"hidden": 64, "taps": 192}
    assert target.tap_layers == (2, LAYERS // 2, LAYERS - 3)
    assert package.manifest.parity["taps_max_rel"] < 1e-3
    assert package.manifest.parity["hidden_max_rel"] < 1e-3
    reads = {kind: spec.reads for kind, spec in specs.items()}
    assert reads["eagle3"] == "taps"
    assert reads["medusa"] == reads["eagle"] == reads["mtp"] == "hidden"
    assert reads["draft-model"] is reads["self-speculative"] is None
    assert specs["self-speculative"].kept_layers == (0, 1, 2, 3, 4, 5, 7)
    assert specs["self-speculative"].weights == ("target.weights",)
    assert specs["mtp"].lookahead == 2
    assert not specs["mtp"].tree_graphs
    assert specs["eagle3"].tree_graphs.keys() == {"2", "3", "4", "5"}
    assert specs["eagle3"].draft_vocab == len(head_checkpoints.DRAFT_IDS)
    assert specs["medusa"].graphs == {"3": "medusa.onnx"}
    assert specs["draft-model"].layers == 1


def test_nothing_else_is_left_in_the_directory(packages: dict[str, Path]) -> None:
    for path in packages.values():
        files = load_package(path).manifest.files
        assert {one.name for one in path.iterdir()} == {*files, "package.json"}


def test_features_change_no_logits(packages: dict[str, Path]) -> None:
    ids = list(range(3, 40))
    found = {
        name: GraphRunner(path / "target.r1.onnx", capacity=64).run([RowStep(ids)])
        for name, path in packages.items()
    }
    for name in ("at-once", "extended"):
        assert found[name]["hidden.0"].shape == (37, 64)
        assert found[name]["taps.0"].shape == (37, 192)
        np.testing.assert_array_equal(found[name]["logits"], found["plain"]["logits"])
    assert not any(key.startswith(("hidden", "taps")) for key in found["plain"])


def test_weights_are_linked_and_the_old_package_was_left(packages: dict[str, Path]) -> None:
    before, after = (load_package(packages[name]).manifest for name in ("plain", "extended"))
    assert before.files["target.weights"] == after.files["target.weights"]
    assert before.files["target.r1.onnx"] != after.files["target.r1.onnx"]
    assert before.target.features == {}
    assert (before.name, before.created, before.settings) == (
        after.name,
        after.created,
        after.settings,
    )


def test_a_kind_that_is_there_is_replaced(
    packages: dict[str, Path], sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "package"
    shutil.copytree(packages["extended"], out)
    before = load_package(out).manifest
    assert export("--into", out, "--medusa", sources / "medusa-own") == 0
    printed = capsys.readouterr().out
    assert "the Medusa heads medusa-own replaces the package's medusa drafter medusa" in printed
    after = load_package(out)
    assert kinds(after) == KINDS
    specs = {spec.kind: spec for spec in after.manifest.drafters}
    assert specs["medusa"].checkpoint == "medusa-own"
    old = {spec.kind: spec for spec in before.drafters}
    for kind in KINDS - {"medusa"}:
        assert specs[kind] == old[kind]
    assert before.files["medusa.weights"] != after.manifest.files["medusa.weights"]
    assert before.files["target.r1.onnx"] == after.manifest.files["target.r1.onnx"]
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_the_last_of_two_of_a_kind_is_taken(
    packages: dict[str, Path], sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "package"
    shutil.copytree(packages["plain"], out)
    both = ("--eagle", sources / "eagle3", "--eagle", sources / "eagle3-named")
    assert export("--into", out, *both) == 0
    assert "eagle3-named replaces the eagle3 head eagle3" in capsys.readouterr().out
    (spec,) = load_package(out).manifest.drafters
    assert spec.checkpoint == "eagle3-named"
    assert load_package(out).manifest.target.tap_layers == (1, 4, 7)


def test_modules_in_the_targets_own_checkpoint(sources: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = tmp_path / "with-mtp"
    shutil.copytree(sources / "target", path)
    own = load_file(path / "model.safetensors")
    head = load_file(sources / "deepseek" / "model.safetensors")
    save_file(head | own, path / "model.safetensors", metadata={"format": "pt"})
    out = tmp_path / "package"
    assert export("--target", path, "--out", out, *SMALL, "--mtp") == 0
    (spec,) = load_package(out).manifest.drafters
    assert (spec.kind, spec.lookahead, spec.checkpoint) == ("mtp", 1, "with-mtp")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--into", "{plain}"], "adds nothing: give one of --draft"),
        (["--into", "{plain}", "--rows", "1", "--medusa", "x"], "--rows is for new ones"),
        (["--into", "{plain}", "--demo", "--force", "--mtp", "x"], "--demo, --force are for new"),
        (["--into", "{sources}/nowhere", "--medusa", "{sources}/medusa"], "no package at"),
        (["--into", "{plain}", "--medusa", "{sources}/nowhere"], "nowhere does not exist"),
        (["--into", "{plain}", "--medusa", "{sources}/eagle"], "not Medusa heads"),
        (["--into", "{plain}", "--eagle", "{sources}/medusa"], "not an EAGLE head"),
        (["--into", "{plain}", "--mtp"], "holds no MTP modules"),
        (["--into", "{plain}", "--eagle", ""], "an empty --eagle names nothing"),
        (["--into", "{plain}", "--eagle", "x" * 5000], "fetching it as a hub id failed"),
        (["--into", "{plain}", "--self-speculative", "9" * 5000], "a number of layers"),
        (["--into", "{plain}", "--draft", "{sources}/eagle"], "eagle"),
        (["--into", "{plain}", "--self-speculative", "0-9"], "no range of the layers 0-7"),
        (["--into", "{plain}", "--self-speculative", "9"], "1 to 8 layers"),
        (["--into", "{plain}", "--mtp", "{sources}/mtp", "--prompts", "{sources}/x"], "cannot be"),
        (
            ["--into", "{plain}", "--target", "{sources}/other", "--medusa", "{sources}/medusa"],
            "is not the checkpoint that",
        ),
        (["--target", "x", "--demo"], "leave out --target or --demo"),
        (["--medusa", "x"], "nothing to export"),
        (
            ["--target", "{sources}/target", "--out", "{sources}/new", "--context", "32", "--mtp"],
            "drafters need 64 at least",
        ),
        (["--target", "x", "--out", "y", "--prompts", "z"], "none is asked for"),
    ],
)
def test_what_cannot_be_is_refused(
    packages: dict[str, Path],
    sources: Path,
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(path.name for path in sources.iterdir())
    places = {"plain": packages["plain"], "sources": sources}
    assert export(*(argument.format(**places) for argument in arguments)) == 1
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.startswith("error: ")
    assert len(printed.splitlines()) == 1
    assert sorted(path.name for path in sources.iterdir()) == before
    assert not load_package(packages["plain"]).manifest.drafters


def test_what_lies_beside_a_package_stays(
    packages: dict[str, Path], sources: Path, tmp_path: Path
) -> None:
    """So does a link to it; and nothing of it becomes a part of the package."""
    place, link = tmp_path / "package", tmp_path / "current"
    shutil.copytree(packages["plain"], place)
    link.symlink_to(place)
    (place / "NOTES").write_text("ours")
    (place / "more").mkdir()
    (place / "more" / "deep").write_text("too")
    (place / "broken").symlink_to("nowhere")
    assert export("--into", link, "--medusa", sources / "medusa") == 0
    assert link.is_symlink()
    assert (place / "NOTES").read_text() == "ours"
    assert (place / "more" / "deep").read_text() == "too"
    assert (place / "broken").is_symlink()
    package = load_package(place)
    assert kinds(package) == {"medusa"}
    assert not {"NOTES", "more", "broken"} & package.manifest.files.keys()


def test_two_at_once_do_not_lose_each_others_drafters(
    packages: dict[str, Path], sources: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(packages["plain"]):
        assert export("--into", packages["plain"], "--medusa", sources / "medusa") == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: another export writes into {packages['plain']}: wait")
    assert not load_package(packages["plain"]).manifest.drafters


def test_taps_of_two_heads_must_be_the_same(
    packages: dict[str, Path], sources: Path, tmp_path: Path
) -> None:
    """A package that has an EAGLE-3 head gives out its taps alone; another head replaces both."""
    out = tmp_path / "package"
    shutil.copytree(packages["extended"], out)
    assert export("--into", out, "--eagle", sources / "eagle3-named") == 0
    assert load_package(out).manifest.target.tap_layers == (1, 4, 7)


def test_a_damaged_head_graph_is_not_written(
    packages: dict[str, Path],
    sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from export import head_drafters

    trace = head_drafters.trace_head

    def damaged(head: object) -> object:
        step = trace(head)  # type: ignore[arg-type]
        norm = next(t for t in step.model.graph.initializer if t.name == "final_norm")
        values = np.frombuffer(norm.raw_data, np.float32)[::-1].copy()
        norm.raw_data = values.tobytes()
        return step

    monkeypatch.setattr(head_drafters, "trace_head", damaged)
    out = tmp_path / "package"
    shutil.copytree(packages["plain"], out)
    assert export("--into", out, "--eagle", sources / "eagle3") == 1
    printed = capsys.readouterr().err
    assert "drafts other tokens than torch does" in printed
    assert not load_package(out).manifest.drafters
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_drafts_are_held_to_their_reference() -> None:
    logits = np.array([[0.0, 5.0, 4.9999, 1.0], [9.0, 0.0, 0.0, 0.0]], np.float32)
    expected = [Expected((1, 0), logits)]
    same = check_drafts("it", expected, [(1, 0)], [(1, 3)])
    assert same == {"prompts": 1, "draft_tokens": 2, "near_ties": 0, "stored_agreement": 0.5}
    assert check_drafts("it", expected, [(2, 3)], [(1, 0)])["near_ties"] == 1
    with pytest.raises(UserError, match=r"1 of 1 prompts .* first at step 2 of prompt 1"):
        check_drafts("it", expected, [(1, 3)], [(1, 0)])
    reduced = [Expected((11, 10), logits, np.array([10, 11, 12, 13]))]
    assert check_drafts("it", reduced, [(12, 10)], [(11, 10)])["near_ties"] == 1


def test_what_rounding_changed_is_said_as_what_it_is() -> None:
    """A share below 100 % is no failure: that is said beside it."""
    told = shown({"stored_agreement": 0.775}, (0.5, 0.25)).splitlines()
    assert told == [
        "  in fp32 it drafts what torch does; as it is stored, 77.5% of those tokens (that is"
        " rounding; answers are the target's all the same)",
        "  right by depth: 0.50 0.25",
    ]
    assert "rounding" not in shown({"stored_agreement": 1.0}, (0.5,))
    assert shown({}, (0.5,)) == "  right by depth: 0.50"


def test_logits_that_are_no_numbers_are_no_parity() -> None:
    """Every comparison with them is false: as one of a gap with what is allowed it would pass."""
    expected = [Expected((0,), np.array([[np.nan, 1.0]], np.float32))]
    with pytest.raises(UserError, match="logits that are no numbers"):
        check_drafts("it", expected, [(1,)], [(1,)])


def test_survival_counts_drafts_that_reach_a_depth() -> None:
    answer = Answer((1, 2), (3, 4, 5, 6, 7))
    asked: list[int] = []

    def proposer(_: Answer):  # type: ignore[no-untyped-def]
        def propose(length: int) -> tuple[int, ...]:
            asked.append(length)
            return (4, 5, 0) if length == 3 else (7, 9, 9)

        return propose

    assert measure_survival([answer], proposer, 3) == (1.0, 1.0, 0.0)
    assert asked == [3, 6]


def test_graphs_name_files_of_the_package_alone(packages: dict[str, Path]) -> None:
    path = packages["extended"]
    for file in path.glob("*.onnx"):
        for tensor in onnx.load(file, load_external_data=False).graph.initializer:
            places = {entry.value for entry in tensor.external_data if entry.key == "location"}
            assert all((path / place).is_file() for place in places)


def test_the_demo_has_its_heads_and_keeps_what_was_added(
    sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from export import options
    from export import sources as where

    heads = tmp_path / "demo_heads"
    shutil.copytree(sources / "medusa", heads / "medusa")
    monkeypatch.setattr(options, "_DEMO_HEADS", heads)
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    demo = where.Source(where.DEMO_CHECKPOINT, "", sources / "target")
    monkeypatch.setattr(where, "demo", lambda: demo)
    monkeypatch.setattr("export.extend.demo", lambda: demo)
    out = tmp_path / "packages" / "smollm2-135m-instruct"
    small = ("--demo", "--dtype", "fp32", "--rows", "1")
    assert export(*small) == 0
    assert kinds(load_package(out)) == {"medusa"}
    assert export(*small, "--eagle", sources / "eagle") == 0
    assert kinds(load_package(out)) == {"medusa", "eagle"}
    capsys.readouterr()
    assert export(*small) == 0
    assert "valid and up to date" in capsys.readouterr().out
    assert kinds(load_package(out)) == {"medusa", "eagle"}
    with monkeypatch.context() as changed:
        changed.setattr("export.__main__.recipe", lambda: "of other code")
        assert export(*small) == 0
    assert "its eagle drafter eagle goes; --into adds it again" in capsys.readouterr().out
    assert kinds(load_package(out)) == {"medusa"}
