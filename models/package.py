"""The package format: the one thing `export` and `models` share.

A package is a directory with a manifest `package.json` and the files it names. The manifest is
canonical JSON (sorted keys, two-space indent, ASCII, one newline at the end) and carries a SHA-256
of itself, so that any altered byte, in it or in a file, is found and named when it is loaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.errors import UserError
from models.locations import default_package_path
from models.sampling.parameters import ADVISED, Sampling

SCHEMA_VERSION = 4
MANIFEST = "package.json"
DRAFTER_KINDS = ("draft-model", "self-speculative", "medusa", "mtp", "eagle", "eagle3")
KEPT, FEATURE_INDEX = "kept.", "feature_index"
"""Of graphs for devices, which write features where a slot keeps them (`kept.hidden.0`), or read
them there, at the rows of an index: the names of these inputs, or their beginnings."""
WEIGHT_TYPES = ("w8a8", "int8", "int4", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size and SHA-256 of one file of the package."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The target: where it came from, its shape, its graphs.

    `graphs` maps a row count R to its graph file, `tree_graphs` to the one for drafts that branch
    (none where a layer's sliding window is narrower than the context); all of them read their
    weights from `weights`. `compact_graph` moves the K/V of an accepted path where the K/V is on a
    device. `vocab_size` is the number of logits: ids that only pad the checkpoint have none.
    `features` are the outputs that drafters read, with their widths: `hidden` is the last hidden
    state, behind the final norm; `taps` the residual stream entering each of `tap_layers`, side by
    side. Both are in the checkpoint's own basis, whatever the stored weights are rotated by.
    `integer_form` says how int8 products are made: `u8s8` needs VNNI, `u8u8` does not, None
    where weights are not w8a8.
    """

    checkpoint: str
    revision: str
    sha256: str
    architecture: str
    weight_type: str
    device: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    context_length: int
    eos_ids: tuple[int, ...]
    top_k: int
    kv_type: str
    integer_form: str | None
    graphs: Mapping[str, str]
    tree_graphs: Mapping[str, str]
    compact_graph: str | None
    weights: str
    features: Mapping[str, int] = field(default_factory=dict)
    tap_layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A learned drafter of the package; its `kind` is what requests call it by.

    `graphs` maps a number of draft steps to the graph that makes them in one run (for `medusa` the
    one graph, whose heads all answer at once); `tree_graphs` maps a depth to the graph that drafts
    a tree of that depth, `tree_width` nodes a level. `reads` names the target's features that the
    first step takes (None: tokens alone). `layers` with their K/V shape are the drafter's own;
    `kept_layers` are the target's, whose K/V a self-speculative drafter uses instead. `lookahead`
    is 1 where an entry of its K/V pairs the feature at a position with the token behind it.
    `draft_vocab` are the tokens it can propose. `context_length` is where its own context ends,
    behind which it drafts nothing (None: it reaches as far as the target). `survival` is, per
    depth, the share of drafts whose tokens were accepted so far, as measured at export (empty: not
    measured).
    """

    kind: str
    checkpoint: str
    revision: str
    sha256: str
    longest: int
    draft_vocab: int
    top_k: int
    graphs: Mapping[str, str]
    weights: tuple[str, ...]
    reads: str | None = None
    tree_graphs: Mapping[str, str] = field(default_factory=dict)
    tree_width: int = 0
    layers: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    kept_layers: tuple[int, ...] = ()
    lookahead: int = 0
    context_length: int | None = None
    survival: tuple[float, ...] = ()
    parity: Mapping[str, float] = field(default_factory=dict)


def vocabulary_file(kind: str) -> str:
    """The file (numpy, int64 [draft_vocab]) with the target's ids of a drafter's own vocabulary.

    A drafter that can propose every token, in order, has none.
    """
    return f"{kind}.ids.npy"


@dataclass(frozen=True, slots=True)
class Manifest:
    """`package.json`, typed. `parity` and `quality` hold the figures measured at export.

    `special_tokens` are the texts a chat template inserts by name (`bos_token`, `eos_token`).
    `sampling` is how the target is sampled for requests that name no temperature: numbers by names
    of `ADVISED`, as its makers advise (none: greedy).
    """

    name: str
    created: int
    outpace: str
    target: TargetSpec
    tokenizer: str
    chat_template: str | None
    files: Mapping[str, FileEntry]
    parity: Mapping[str, float]
    quality: Mapping[str, float]
    drafters: tuple[DrafterSpec, ...] = ()
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Package:
    """A validated package on disk."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        return self.path / name

    @property
    def row_counts(self) -> tuple[int, ...]:
        return tuple(sorted(int(rows) for rows in self.manifest.target.graphs))


def file_entry(path: Path) -> FileEntry:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileEntry(bytes=path.stat().st_size, sha256=digest)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write `package.json` with its own digest. The caller makes the directory appear whole."""
    document = {"schema": SCHEMA_VERSION, **dataclasses.asdict(manifest)}
    document["digest"] = _digest(document)
    (directory / MANIFEST).write_bytes(_canonical(document))


def load_package(path: Path, *, digests: bool = True) -> Package:
    """Read and check a package; without `digests` an altered file of the same size is not found.

    Raises `UserError` (code `package_invalid`, or `package_missing`) that names the file which is
    missing, truncated or altered, or the schema version that this build does not know.
    """
    path = Path(path)
    manifest = read_manifest(path)
    name = MANIFEST
    try:
        for name, entry in manifest.files.items():
            _check_file(path, name, entry, digests)
    except OSError as error:
        raise _invalid(name, f"cannot be read ({error.strerror})") from None
    _check_names(manifest)
    _check_sampling(manifest.sampling)
    return Package(path=path, manifest=manifest)


def read_manifest(path: Path) -> Manifest:
    """What the package at `path` says of itself; its files are not looked at.

    Raises `UserError` as `load_package` does.
    """
    try:
        if not (path / MANIFEST).is_file():
            raise UserError(
                f"no package at {path}: {MANIFEST} is missing. {_how_to_have_one(path)}",
                code="package_missing",
                param=MANIFEST,
            )
        return _parse_manifest(path / MANIFEST)
    except OSError as error:
        raise _invalid(MANIFEST, f"cannot be read ({error.strerror})") from None


def _how_to_have_one(path: Path) -> str:
    """With this interpreter: another one may have no exporter."""
    export = f"{shlex.quote(sys.executable)} -m export"
    if path == default_package_path():
        return f"`make run` makes the demo's there, or `{export} --demo`; --package names another."
    return f"Name one with --package, or make one: `{export} --target SOURCE --out DIR`."


def require_unchanged(package: Package) -> None:
    """Refuse to read on in a directory that holds another package by now.

    Raises `UserError` (`package_changed`): graphs of two packages must not be mixed.
    """
    try:
        same = _parse_manifest(package.path / MANIFEST) == package.manifest
    except (OSError, UserError):
        same = False
    if not same:
        raise UserError(
            f"the package in {package.path} was changed since it was loaded, and this needs more"
            " of it: load it anew.",
            code="package_changed",
            param="package",
        )


def _parse_manifest(path: Path) -> Manifest:
    raw = path.read_bytes()
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _invalid(MANIFEST, f"is not valid JSON ({error})") from None
    if not isinstance(document, dict):
        raise _invalid(MANIFEST, "is not a JSON object")
    version = document.get("schema")
    if version != SCHEMA_VERSION:
        raise _invalid(
            MANIFEST,
            f"has schema version {version!r}; this build reads version {SCHEMA_VERSION}."
            " Export it again, or use the Outpace version that wrote it",
        )
    digest = document.pop("digest", None)
    if digest != _digest(document) or raw != _canonical({**document, "digest": digest}):
        raise _invalid(MANIFEST, "was altered: its contents do not match its digest")
    del document["schema"]
    try:
        manifest: Manifest = _typed(Manifest, document, "")
    except (KeyError, TypeError, ValueError) as error:
        raise _invalid(MANIFEST, f"does not follow the schema: {error}") from None
    return manifest


def _check_file(root: Path, name: str, entry: FileEntry, digests: bool) -> None:
    if Path(name).name != name:
        raise _invalid(MANIFEST, f"names {name!r}, which is not a plain file name")
    path = root / name
    if not path.is_file():
        raise _invalid(name, "is missing")
    size = path.stat().st_size
    if size != entry.bytes:
        raise _invalid(name, f"has {size} bytes where {entry.bytes} were written")
    if digests and file_entry(path).sha256 != entry.sha256:
        raise _invalid(name, "was altered: its SHA-256 does not match the manifest")


def _check_names(manifest: Manifest) -> None:
    target = manifest.target
    optional = (manifest.chat_template, target.compact_graph)
    named = [*target.graphs.values(), *target.tree_graphs.values()]
    named += [target.weights, manifest.tokenizer, *filter(None, optional)]
    for drafter in manifest.drafters:
        named += [*drafter.graphs.values(), *drafter.tree_graphs.values(), *drafter.weights]
        if drafter.reads is not None and drafter.reads not in target.features:
            raise _invalid(
                MANIFEST,
                f"has a drafter {drafter.kind} that reads {drafter.reads}, which the target's"
                " graphs do not give out",
            )
    for name in named:
        if name not in manifest.files:
            raise _invalid(MANIFEST, f"uses {name!r} without listing it under files")
    if target.tree_graphs and target.tree_graphs.keys() != target.graphs.keys():
        raise _invalid(MANIFEST, "has graphs for trees for other row counts than for chains")


def _check_sampling(advice: Mapping[str, float]) -> None:
    unknown = sorted(advice.keys() - set(ADVISED))
    if unknown:
        raise _invalid(MANIFEST, f"has {unknown} under sampling; known are {list(ADVISED)}")
    try:
        Sampling().advised(advice, ())
    except (ValueError, UserError) as error:
        raise _invalid(MANIFEST, f"has sampling that cannot be had: {error}") from None


def _invalid(name: str, problem: str) -> UserError:
    return UserError(f"package file {name} {problem}.", code="package_invalid", param=name)


def _canonical(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(document)).hexdigest()


def _typed(kind: Any, value: Any, where: str) -> Any:
    """`value` (parsed JSON) as `kind`, a dataclass, a container of them, or a scalar."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _typed_record(kind, value, where)
    if origin in (Mapping, dict) or origin is typing.get_origin(Mapping[str, str]):
        _expect(value, dict, where)
        return {key: _typed(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is tuple:
        _expect(value, list, where)
        return tuple(_typed(arguments[0], item, where) for item in value)
    if origin is types.UnionType:
        return None if value is None else _typed(arguments[0], value, where)
    if kind is float:
        _expect(value, (int, float), where)
        return float(value)
    _expect(value, kind, where)
    return value


def _typed_record(kind: Any, value: Any, where: str) -> Any:
    _expect(value, dict, where or MANIFEST)
    hints = typing.get_type_hints(kind)
    unknown, missing = value.keys() - hints.keys(), hints.keys() - value.keys()
    if unknown or missing:
        raise ValueError(f"{where or 'top level'}: {sorted(unknown | missing)} unknown or missing")
    return kind(**{key: _typed(hints[key], value[key], f"{where}.{key}") for key in hints})


def _expect(value: Any, kind: Any, where: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{where.lstrip('.')} has the wrong type ({type(value).__name__})")
