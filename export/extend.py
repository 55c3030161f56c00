"""Adds drafters to a package that exists: staged beside it, then put in its place.

The target's weights are linked, not copied, and not changed. Its graphs are written anew where the
drafters read features that they do not give out yet.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from export.checkpoint import Checkpoint, inspect_source, load_checkpoint
from export.drafter_files import EMBEDDING
from export.drafter_site import Site
from export.drafters import (
    Plan,
    drafter_files,
    features_of,
    read_plans,
    remove_unused,
    write_drafters,
)
from export.features import Features, without_features
from export.pipeline import calibration, file_entries, listed, make_reference
from export.progress import Progress
from export.sources import DEMO_CHECKPOINT, Source, demo, locate, weights_sha256
from export.stored import FEATURE_WEIGHTS, check_graphs, give_features, write_graphs
from export.wanted import Wanted
from export.writer import link_or_copy, locked, staged, sweep
from models.errors import UserError
from models.package import (
    MANIFEST,
    DrafterSpec,
    Manifest,
    Package,
    TargetSpec,
    load_package,
    write_manifest,
)


@dataclass(frozen=True, slots=True)
class ExtendRequest:
    """`target` names the checkpoint of the package's target; None: where it was when exported."""

    package: Path
    target: str | None
    drafters: tuple[Wanted, ...]
    questions: tuple[str, ...] = ()


def extend_package(request: ExtendRequest, progress: Progress) -> Manifest:
    """Write the package anew with further drafters, whole or not at all."""
    sweep(request.package)
    with _alone(request.package):
        return _extend_package(request, progress)


def _extend_package(request: ExtendRequest, progress: Progress) -> Manifest:
    with progress.step("checking the package"):
        package = load_package(request.package)
    with progress.step("fetching the checkpoint"):
        source = find_checkpoint(package, request.target)
        require_same(package, source)
    with staged(request.package, replace=True) as staging:
        with progress.step(f"loading {source.name}"):
            checkpoint = load_checkpoint(source, inspect_source(source))
        context = package.manifest.target.context_length
        plans = read_plans(request.drafters, checkpoint, context, progress)
        manifest = _extended(package, plans, checkpoint, staging, request.questions, progress)
        write_manifest(staging, manifest)
        _keep_others(package, staging)
    return manifest


@contextlib.contextmanager
def _alone(package: Path) -> Iterator[None]:
    """Two at once would each write what it found, and one's drafters would be lost."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(package))
        except BlockingIOError:
            raise UserError(
                f"another export writes into {package}: wait until it has ended.",
                code="package_in_use",
                param="--into",
            ) from None
        except OSError:
            pass  # what is wrong with it loading will say
        yield


def _extended(
    package: Package,
    plans: Sequence[Plan],
    checkpoint: Checkpoint,
    staging: Path,
    questions: tuple[str, ...],
    progress: Progress,
) -> Manifest:
    manifest = package.manifest
    kept = _kept(manifest.drafters, plans, progress)
    target, parity = _with_features(package, plans, kept, checkpoint, staging, progress)
    _link(package, _files_of(manifest, kept), staging)
    site = Site(staging, target, calibration(checkpoint.without_model()), questions)
    drafters = (*kept, *write_drafters(plans, site, progress))
    remove_unused(staging, drafters, EMBEDDING)
    with progress.step("hashing"):
        files = file_entries(staging)
    return dataclasses.replace(
        manifest, target=target, drafters=drafters, parity=parity, files=files
    )


def find_checkpoint(package: Package, target: str | None) -> Source:
    if target is not None:
        return locate(target)
    manifest = package.manifest
    if manifest.target.checkpoint == DEMO_CHECKPOINT:
        return demo()
    where = manifest.settings.get("source", "")
    try:
        return locate(where)
    except UserError as error:
        raise UserError(
            f"the checkpoint that {package.path} was made from, {manifest.target.checkpoint},"
            f" is not to be found ({error.message.rstrip('.')}). Name it with --target.",
            code="source_unavailable",
            param="--target",
        ) from error


def require_same(package: Package, source: Source) -> None:
    """Drafters are made for one checkpoint: weights that differ are another's."""
    target, found = package.manifest.target, weights_sha256(source)
    if found != target.sha256:
        raise UserError(
            f"{source.name} (SHA-256 {found[:12]}) is not the checkpoint that {package.path} was"
            f" made from: {target.checkpoint} (SHA-256 {target.sha256[:12]}).",
            code="checkpoint_mismatch",
            param="--target",
        )


def _kept(
    present: Sequence[DrafterSpec], plans: Sequence[Plan], progress: Progress
) -> tuple[DrafterSpec, ...]:
    new = {plan.kind: plan for plan in plans}
    for spec in present:
        if spec.kind in new:
            progress.line(
                f"  {new[spec.kind].describe} replaces the package's {spec.kind} drafter"
                f" {spec.checkpoint}"
            )
    return tuple(spec for spec in present if spec.kind not in new)


def _with_features(
    package: Package,
    plans: Sequence[Plan],
    kept: Sequence[DrafterSpec],
    checkpoint: Checkpoint,
    staging: Path,
    progress: Progress,
) -> tuple[TargetSpec, dict[str, float]]:
    """The target's spec and parity; its graphs are in `staging` afterwards."""
    manifest = package.manifest
    target, features = manifest.target, features_of(plans, kept, manifest.target)
    parity = dict(manifest.parity)
    present = Features("hidden" in target.features, target.tap_layers)
    _link(package, [target.weights], staging)
    if features == present:
        names = (*target.graphs.values(), *target.tree_graphs.values(), FEATURE_WEIGHTS)
        compact = [target.compact_graph] if target.compact_graph else []
        _link(package, [*names, *compact], staging)
        return target, parity
    if target.device == "tensorrt":
        raise UserError(
            "graphs for TensorRT cannot be given further features: export the package again, with"
            " its drafters.",
            code="invalid_option",
            param="--into",
        )
    reference = make_reference(checkpoint, target.context_length, features, progress)
    with progress.step("giving the target's graphs the features that drafters read"):
        stored = onnx.load(str(package.file(target.graphs["1"])), load_external_data=False)
        skeleton = give_features(without_features(stored), features, staging)
        rows = package.row_counts
        files = write_graphs(skeleton, staging, rows, target.context_length, target.device)
    with progress.step("checking the stored graphs"):
        figures = check_graphs(files, reference, target.weight_type, target.device)
    progress.line("  stored: " + listed(figures))
    changed = dataclasses.replace(
        target, features=features.widths(target.hidden_size), tap_layers=features.tap_layers
    )
    return changed, parity | figures


def _files_of(manifest: Manifest, kept: Sequence[DrafterSpec]) -> set[str]:
    """What stays as it is, beside the target's weights and graphs."""
    names = {manifest.tokenizer, *(name for spec in kept for name in drafter_files(spec))}
    return names | ({manifest.chat_template} if manifest.chat_template else set())


def _keep_others(package: Package, staging: Path) -> None:
    """What a user laid beside the package's files stays there."""
    own = {*package.manifest.files, MANIFEST}
    for path in package.path.iterdir():
        place = staging / path.name
        if path.name in own or place.exists():
            continue
        if path.is_symlink() or path.is_file():
            shutil.copy2(path, place, follow_symlinks=False)
        elif path.is_dir():
            shutil.copytree(path, place, symlinks=True)


def _link(package: Package, names: Iterable[str], staging: Path) -> None:
    """Nothing in `staging` is ever written over, so a link is as good as a copy."""
    for name in names:
        source, place = package.file(name), staging / name
        if place.exists() or not source.exists():
            continue
        link_or_copy(source, place)
