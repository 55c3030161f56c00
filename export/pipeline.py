"""From a checkpoint to a package."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from export.architectures import max_context
from export.checkpoint import Checkpoint, inspect_source, load_checkpoint
from export.decoder import TOP_K, head_dim, trace_decoder
from export.drafter_site import Site
from export.drafters import features_of, read_plans, write_drafters
from export.feature_parity import check_features, with_features
from export.features import Features
from export.half import to_half
from export.parity import Reference, check_parity, reference_logits
from export.passes import canonicalise
from export.progress import Progress
from export.quantization import CalibrationContext, quantize
from export.quantization.quality import shown
from export.sources import Source, weights_sha256
from export.stored import GraphFiles, check_graphs, give_features, write_graphs
from export.tree_parity import check_trees
from export.wanted import Wanted
from export.writer import check_space, externalise, staged
from models.errors import UserError
from models.package import FileEntry, Manifest, TargetSpec, file_entry, write_manifest

WEIGHTS = "target.weights"
TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.jinja"
DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to build. `context` None: what the checkpoint allows, at most 8192."""

    source: Source
    out: Path
    name: str
    weight_type: str = "w8a8"
    device: str = "cpu"
    rows: tuple[int, ...] = (1, 2, 4)
    context: int | None = None
    replace: bool = False
    drafters: tuple[Wanted, ...] = ()
    questions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Built:
    """The graphs, and what was measured on the way."""

    graphs: GraphFiles
    parity: Mapping[str, float]
    quality: Mapping[str, float]
    integer_form: str | None


def build_package(request: ExportRequest, progress: Progress, recipe: str) -> Manifest:
    """Write the package to `request.out`, whole or not at all."""
    model_type = inspect_source(request.source)
    with staged(request.out, replace=request.replace) as staging:
        with progress.step(f"loading {request.source.name}"):
            checkpoint = load_checkpoint(request.source, model_type)
        check_space(staging, _bytes_needed(checkpoint.config, checkpoint.model))
        context = context_length(request, checkpoint.config)
        plans = read_plans(request.drafters, checkpoint, context, progress)
        features = features_of(plans)
        reference = make_reference(checkpoint, context, features, progress)
        with tempfile.TemporaryDirectory(dir=staging) as scratch:
            plain = _trace(checkpoint, context, Path(scratch), progress)
            checkpoint = checkpoint.without_model()
            built = _write_graphs(
                request, checkpoint, plain, reference, staging, Path(scratch), features, progress
            )
        _write_texts(checkpoint, staging)
        target = _target(request, checkpoint, context, built, features)
        site = Site(staging, target, calibration(checkpoint), request.questions)
        drafters = write_drafters(plans, site, progress)
        with progress.step("hashing"):
            manifest = _manifest(request, checkpoint, target, built, staging, recipe)
            manifest = dataclasses.replace(manifest, drafters=drafters)
            write_manifest(staging, manifest)
    return manifest


def make_reference(
    checkpoint: Checkpoint, context: int, features: Features, progress: Progress
) -> Reference:
    with progress.step("running torch for reference"):
        reference = reference_logits(checkpoint.model, checkpoint.encode, context)
        if features:
            reference = with_features(reference, checkpoint.model, features)
    return reference


def context_length(request: ExportRequest, config: Any) -> int:
    most = max_context(config)
    if request.context is None:
        return min(most, DEFAULT_CONTEXT)
    if not 1 <= request.context <= most:
        raise UserError(
            f"--context {request.context}: {request.source.name} was made for 1 to {most} tokens.",
            code="invalid_option",
            param="--context",
        )
    return request.context


def _trace(
    checkpoint: Checkpoint, context: int, scratch: Path, progress: Progress
) -> onnx.ModelProto:
    with progress.step("tracing the decoder"):
        traced = trace_decoder(checkpoint.model, checkpoint.architecture, context, scratch)
    with progress.step("making the graph canonical"):
        return canonicalise(traced)


def _write_graphs(
    request: ExportRequest,
    checkpoint: Checkpoint,
    plain: onnx.ModelProto,
    reference: Reference,
    staging: Path,
    scratch: Path,
    features: Features,
    progress: Progress,
) -> Built:
    """Check the fp32 graph, quantise it, write the graphs for every row count, check those."""
    context = context_length(request, checkpoint.config)
    exact = request.weight_type == "fp32" and request.device == "cpu"
    with progress.step("checking parity with torch"):
        place = staging if exact else scratch
        skeleton = give_features(externalise(plain, place / WEIGHTS), features, place)
        parity = _check_plain(skeleton, place, context, reference)
    progress.line("  parity: " + listed(parity))
    quality: Mapping[str, float] = {}
    integer_form = None
    if not exact:
        stored, quality, integer_form = _quantised(request, checkpoint, plain, progress)
        if request.device != "cpu":
            stored = to_half(stored)
        skeleton = externalise(stored, staging / WEIGHTS)
        skeleton = give_features(skeleton, features, staging)
    graphs = write_graphs(skeleton, staging, request.rows, context, request.device)
    with progress.step("checking the stored graphs"):
        figures = check_graphs(graphs, reference, request.weight_type, request.device)
    progress.line("  stored: " + listed(figures))
    if not graphs.trees:
        reason = "a sliding window is narrower than the context"
        if request.device == "tensorrt":
            reason = "TensorRT verifies chains only"
        progress.line(f"  no graphs for trees: {reason}")
    return Built(graphs, parity | figures, quality, integer_form)


def _check_plain(
    skeleton: onnx.ModelProto, place: Path, context: int, reference: Reference
) -> dict[str, float]:
    """The graph for one row against torch, and its trees against it, before any rounding."""
    files = write_graphs(skeleton, place, (1,), context, "cpu")
    parity = check_parity(files.chains[1], reference)
    if reference.features:
        parity |= check_features(files.chains[1], reference)
    if files.trees:
        check_trees(files.chains, files.trees, reference)
    return parity


def _quantised(
    request: ExportRequest, checkpoint: Checkpoint, plain: onnx.ModelProto, progress: Progress
) -> tuple[onnx.ModelProto, Mapping[str, float], str | None]:
    if request.weight_type == "fp16":
        return plain, {}, None
    with progress.steps() as report:
        context = calibration(checkpoint, report)
        stored, quality, integer_form = quantize(plain, request.weight_type, context)
    progress.line("  quality: " + shown(quality))
    return stored, quality, integer_form


def calibration(
    checkpoint: Checkpoint, report: Callable[[str], None] | None = None
) -> CalibrationContext:
    return CalibrationContext(
        encode=checkpoint.encode,
        render=checkpoint.renderer(),
        bos_id=checkpoint.bos[0] if checkpoint.bos else None,
        eos_ids=checkpoint.eos_ids,
        report=report,
    )


def _write_texts(checkpoint: Checkpoint, staging: Path) -> None:
    (staging / TOKENIZER).write_text(
        checkpoint.tokenizer.backend_tokenizer.to_str(), encoding="utf-8"
    )
    if checkpoint.chat_template is not None:
        (staging / TEMPLATE).write_text(checkpoint.chat_template, encoding="utf-8")


def _target(
    request: ExportRequest,
    checkpoint: Checkpoint,
    context: int,
    built: Built,
    features: Features,
) -> TargetSpec:
    config = checkpoint.config
    return TargetSpec(
        checkpoint=request.source.name,
        revision=request.source.revision,
        sha256=weights_sha256(request.source),
        architecture=checkpoint.model_type,
        weight_type=request.weight_type,
        device=request.device,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim(config),
        hidden_size=config.hidden_size,
        vocab_size=checkpoint.vocab_size,
        context_length=context,
        eos_ids=checkpoint.eos_ids,
        top_k=min(TOP_K, checkpoint.vocab_size),
        kv_type="fp32" if request.device == "cpu" else "fp16",
        integer_form=built.integer_form,
        graphs={str(rows): path.name for rows, path in built.graphs.chains.items()},
        tree_graphs={str(rows): path.name for rows, path in built.graphs.trees.items()},
        compact_graph=None if built.graphs.compact is None else built.graphs.compact.name,
        weights=WEIGHTS,
        features=features.widths(config.hidden_size),
        tap_layers=features.tap_layers,
    )


def file_entries(directory: Path) -> dict[str, FileEntry]:
    return {path.name: file_entry(path) for path in sorted(directory.iterdir()) if path.is_file()}


def _manifest(
    request: ExportRequest,
    checkpoint: Checkpoint,
    target: TargetSpec,
    built: Built,
    staging: Path,
    recipe: str,
) -> Manifest:
    return Manifest(
        name=request.name,
        created=int(time.time()),
        outpace=_version(),
        target=target,
        tokenizer=TOKENIZER,
        chat_template=TEMPLATE if checkpoint.chat_template is not None else None,
        files=file_entries(staging),
        parity=dict(built.parity),
        quality=dict(built.quality),
        special_tokens={
            "bos_token": checkpoint.bos[1] if checkpoint.bos else "",
            "eos_token": checkpoint.eos_text,
        },
        sampling=dict(checkpoint.sampling),
        settings={"recipe": recipe, "source": request.source.where},
    )


def listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def _bytes_needed(config: Any, model: Any) -> int:
    """The trace, the fp32 graph and the package, each at most the fp32 weights with untied head."""
    weights = sum(int(parameter.numel()) for parameter in model.parameters())
    return 3 * 4 * (weights + int(config.vocab_size) * int(config.hidden_size))


def _version() -> str:
    try:
        return importlib.metadata.version("outpace")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
