"""The package format: what is written is read back; what was damaged is refused by name."""

from __future__ import annotations

import dataclasses
import errno
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from models.errors import UserError
from models.locations import default_package_path
from models.package import (
    MANIFEST,
    SCHEMA_VERSION,
    DrafterSpec,
    Manifest,
    TargetSpec,
    file_entry,
    load_package,
    write_manifest,
)

CONTENTS = {
    "target.r1.onnx": b"graph for one row",
    "target.r2.onnx": b"graph for two rows",
    "target.tree.r1.onnx": b"graph for trees",
    "target.tree.r2.onnx": b"graph for two trees",
    "target.compact.onnx": b"graph that moves",
    "target.weights": bytes(range(256)),
    "medusa.onnx": b"graph of heads",
    "medusa.weights": b"heads",
    "tokenizer.json": b'{"version": "1.0"}',
    "chat_template.jinja": "{{ messages }} é".encode(),
}
GRAPHS = {"1": "target.r1.onnx", "2": "target.r2.onnx"}
TREE_GRAPHS = {"1": "target.tree.r1.onnx", "2": "target.tree.r2.onnx"}

TARGET = TargetSpec(
    checkpoint="somebody/some-model",
    revision="main",
    sha256="0" * 64,
    architecture="LlamaForCausalLM",
    weight_type="w8a8",
    device="cpu",
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    hidden_size=32,
    vocab_size=300,
    context_length=128,
    eos_ids=(2, 7),
    top_k=64,
    kv_type="fp32",
    integer_form="u8u8",
    graphs=GRAPHS,
    tree_graphs=TREE_GRAPHS,
    compact_graph="target.compact.onnx",
    weights="target.weights",
    features={"hidden": 32},
)


MEDUSA = DrafterSpec(
    kind="medusa",
    checkpoint="heads",
    revision="1",
    sha256="1" * 64,
    longest=3,
    draft_vocab=300,
    top_k=64,
    graphs={"3": "medusa.onnx"},
    weights=("medusa.weights",),
    reads="hidden",
    survival=(0.6, 0.3, 0.1),
    parity={"max_abs": 1e-4},
)


def written(directory: Path, **changes: object) -> Manifest:
    for name, content in CONTENTS.items():
        (directory / name).write_bytes(content)
    manifest = Manifest(
        name="small",
        created=1_790_000_000,
        outpace="0.1.0",
        target=TARGET,
        tokenizer="tokenizer.json",
        chat_template="chat_template.jinja",
        files={name: file_entry(directory / name) for name in CONTENTS},
        parity={"max_abs": 1e-5},
        quality={"kl": 0.008, "agreement": 0.97},
        drafters=(MEDUSA,),
        settings={"rows": "1,2"},
    )
    manifest = dataclasses.replace(manifest, **changes)  # type: ignore[arg-type]
    write_manifest(directory, manifest)
    return manifest


def refusal(directory: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        load_package(directory)
    assert caught.value.code == "package_invalid"
    return caught.value


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    manifest = written(tmp_path)
    package = load_package(tmp_path)
    assert package.manifest == manifest
    assert package.row_counts == (1, 2)
    assert package.file("target.weights").read_bytes() == CONTENTS["target.weights"]


def test_optional_entries_may_be_none(tmp_path: Path) -> None:
    target = dataclasses.replace(TARGET, integer_form=None)
    manifest = written(tmp_path, chat_template=None, drafters=(), target=target)
    assert load_package(tmp_path).manifest == manifest


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"graphs": {"3": "mtp.k3.onnx"}}, "'mtp.k3.onnx' without listing it"),
        ({"tree_graphs": {"3": "medusa.tree.d3.onnx"}}, "'medusa.tree.d3.onnx' without listing it"),
        ({"weights": ("medusa.weights", "drafters.embedding")}, "'drafters.embedding' without"),
        ({"reads": "taps"}, "a drafter medusa that reads taps, which the target's graphs"),
    ],
)
def test_a_drafter_names_what_the_package_has(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    written(tmp_path, drafters=(dataclasses.replace(MEDUSA, **change),))
    assert named in refusal(tmp_path).message


def test_how_it_is_sampled_is_read_back(tmp_path: Path) -> None:
    advice = {"temperature": 0.6, "top_k": 20.0, "top_p": 0.9, "min_p": 0.0}
    written(tmp_path, sampling=advice)
    assert load_package(tmp_path).manifest.sampling == advice


@pytest.mark.parametrize(
    ("advice", "named"),
    [
        ({"temperature": 3.0}, "temperature must be from 0 to 2, not 3.0."),
        ({"top_p": float("nan")}, "top_p must be from 0 to 1, not nan."),
        ({"top_k": float("nan")}, "cannot convert float NaN"),
        ({"seed": 1.0}, "has ['seed'] under sampling; known are ['temperature',"),
    ],
)
def test_sampling_that_no_request_could_ask_for_is_refused(
    advice: dict[str, float], named: str, tmp_path: Path
) -> None:
    written(tmp_path, sampling=advice)
    assert named in refusal(tmp_path).message


def test_a_package_may_have_no_graphs_for_trees(tmp_path: Path) -> None:
    target = dataclasses.replace(TARGET, tree_graphs={}, compact_graph=None)
    manifest = written(tmp_path, target=target)
    assert load_package(tmp_path).manifest == manifest


def test_graphs_for_trees_are_there_for_every_row_count(tmp_path: Path) -> None:
    target = dataclasses.replace(TARGET, tree_graphs={"1": "target.tree.r1.onnx"})
    written(tmp_path, target=target)
    assert "for other row counts than for chains" in refusal(tmp_path).message


def test_the_same_manifest_is_the_same_bytes(tmp_path: Path) -> None:
    manifest = written(tmp_path)
    first = (tmp_path / MANIFEST).read_bytes()
    write_manifest(tmp_path, manifest)
    assert (tmp_path / MANIFEST).read_bytes() == first


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("kept", ["none", "all but one byte", "one byte too many"])
def test_a_file_of_another_length_is_named(tmp_path: Path, name: str, kept: str) -> None:
    written(tmp_path)
    content = CONTENTS[name]
    changed = {"none": b"", "all but one byte": content[:-1], "one byte too many": content + b"x"}
    (tmp_path / name).write_bytes(changed[kept])
    error = refusal(tmp_path)
    assert error.param == name
    assert f"{name} has {len(changed[kept])} bytes" in error.message


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_with_any_byte_changed_is_named(tmp_path: Path, name: str) -> None:
    written(tmp_path)
    content = CONTENTS[name]
    for index in range(len(content)):
        changed = bytearray(content)
        changed[index] ^= 1
        (tmp_path / name).write_bytes(changed)
        error = refusal(tmp_path)
        assert error.param == name
        assert f"{name} was altered" in error.message


@pytest.mark.parametrize("name", CONTENTS)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    written(tmp_path)
    (tmp_path / name).unlink()
    error = refusal(tmp_path)
    assert error.param == name
    assert f"{name} is missing" in error.message


@pytest.mark.parametrize("mask", [0x01, 0x20])
def test_any_byte_changed_in_the_manifest_is_noticed(tmp_path: Path, mask: int) -> None:
    written(tmp_path)
    path = tmp_path / MANIFEST
    content = path.read_bytes()
    for index in range(len(content)):
        changed = bytearray(content)
        changed[index] ^= mask
        path.write_bytes(changed)
        assert refusal(tmp_path).param == MANIFEST, f"byte {index}"


def test_any_truncation_of_the_manifest_is_noticed(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / MANIFEST
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert refusal(tmp_path).param == MANIFEST, f"{length} bytes"


def test_a_missing_manifest_says_how_to_make_a_package(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"package\.json is missing") as caught:
        load_package(tmp_path)
    assert (caught.value.code, caught.value.param) == ("package_missing", MANIFEST)
    export = f"{sys.executable} -m export"
    assert f"Name one with --package, or make one: `{export} --target" in caught.value.message


def test_where_the_demo_is_missing_its_own_command_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path))
    with pytest.raises(UserError) as caught:
        load_package(default_package_path())
    assert "`make run` makes the demo's there" in caught.value.message
    assert f"`{sys.executable} -m export --demo`" in caught.value.message
    assert caught.value.message.endswith("--package names another.")


def test_another_schema_version_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / MANIFEST
    document = json.loads(path.read_bytes())
    document["schema"] = SCHEMA_VERSION + 1
    path.write_text(json.dumps(document))
    error = refusal(tmp_path)
    assert error.param == MANIFEST
    assert f"schema version {SCHEMA_VERSION + 1}" in error.message
    assert f"reads version {SCHEMA_VERSION}" in error.message


@pytest.mark.parametrize("content", ["[]", "null", "3", '"text"'])
def test_a_manifest_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content)
    assert "not a JSON object" in refusal(tmp_path).message


def test_a_manifest_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(b"\xff\xfe\x00")
    assert "not valid JSON" in refusal(tmp_path).message


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_manifest_nested_without_end_is_refused(tmp_path: Path, opening: str) -> None:
    (tmp_path / MANIFEST).write_text(opening * 100_000)
    assert refusal(tmp_path).param == MANIFEST


@pytest.mark.parametrize("name", [MANIFEST, "target.weights"])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    written(tmp_path)
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    error = refusal(tmp_path)
    assert error.param == name
    assert f"{name} cannot be read (Permission denied)" in error.message


def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    assert "File name too long" in refusal(tmp_path / ("x" * 300)).message


@pytest.mark.parametrize("name", ["../target.weights", "/etc/passwd", "sub/target.weights"])
def test_a_file_outside_the_package_is_refused(tmp_path: Path, name: str) -> None:
    entry = file_entry(written(tmp_path) and tmp_path / "target.weights")
    written(tmp_path, files={name: entry})
    error = refusal(tmp_path)
    assert error.param == MANIFEST
    assert repr(name) in error.message


@pytest.mark.parametrize("unlisted", CONTENTS)
def test_a_file_that_is_used_must_be_listed(tmp_path: Path, unlisted: str) -> None:
    files = dict(written(tmp_path).files)
    del files[unlisted]
    written(tmp_path, files=files)
    error = refusal(tmp_path)
    assert error.param == MANIFEST
    assert repr(unlisted) in error.message
