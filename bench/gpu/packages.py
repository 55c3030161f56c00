"""Packages of random weights, built where the check runs: without torch, in seconds."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from bench.gpu.decoder import TOP_K, decoder
from bench.gpu.shapes import Shape, drafter_shape
from bench.gpu.weights import Weights
from export.drafter_files import write_drafter
from export.heads.step import StepGraph
from export.kept_features import keep_features
from export.rows import derive_rows
from export.standard import to_standard
from export.writer import save_graph
from models.package import (
    MANIFEST,
    DrafterSpec,
    Manifest,
    Package,
    TargetSpec,
    file_entry,
    load_package,
    write_manifest,
)

ROWS = (1, 2, 4)
STEPS = (1, 2, 4)
DRAFT_KIND = "draft-model"
CONTRIB_FORM, FUSED, APART = "contrib", "fused", "apart"
"""How attention is written: as CUDA has it, or in ONNX's own operators (`export.standard`)."""

_WEIGHTS, _TOKENIZER = "target.weights", "tokenizer.json"
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def package_of(
    directory: Path,
    shape: Shape,
    weight_type: str,
    rows: tuple[int, ...] = ROWS,
    form: str = CONTRIB_FORM,
) -> Package:
    """The package for a GPU in `directory`, made where it is not there."""
    suffix = "" if form == CONTRIB_FORM else f"-{form}"
    path = directory / f"{shape.name}-{weight_type}{suffix}"
    if not (path / MANIFEST).is_file():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        _build(path, shape, weight_type, rows, form)
    return load_package(path)


def _build(path: Path, shape: Shape, weight_type: str, rows: tuple[int, ...], form: str) -> None:
    with Weights(path / _WEIGHTS, weight_type, seed=1) as weights:
        single = decoder(shape, weights, features=True)
    for count in rows:
        graph = keep_features(derive_rows(single, count))
        if form != CONTRIB_FORM:
            graph = to_standard(graph, fused=form == FUSED)
        save_graph(graph, path / f"target.r{count}.onnx")
    drafter = _write_drafter(path, drafter_shape(shape), weight_type)
    tokenizer_of(shape.vocabulary).save(str(path / _TOKENIZER))
    target = TargetSpec(
        checkpoint=f"random {shape.name}",
        revision="",
        sha256="",
        architecture="llama",
        weight_type=weight_type,
        device="cuda" if form == CONTRIB_FORM else "tensorrt",
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        hidden_size=shape.hidden,
        vocab_size=shape.vocabulary,
        context_length=shape.context,
        eos_ids=(2,),
        top_k=min(TOP_K, shape.vocabulary),
        kv_type="fp32" if weight_type == "fp32" else "fp16",
        integer_form=None,
        graphs={str(count): f"target.r{count}.onnx" for count in rows},
        tree_graphs={},
        compact_graph=None,
        weights=_WEIGHTS,
        features={"hidden": shape.hidden},
    )
    manifest = Manifest(
        name=f"random-{shape.name}",
        created=int(time.time()),
        outpace="",
        target=target,
        tokenizer=_TOKENIZER,
        chat_template=None,
        files={each.name: file_entry(each) for each in sorted(path.iterdir())},
        parity={},
        quality={},
        drafters=(drafter,),
    )
    write_manifest(path, manifest)


def _write_drafter(path: Path, shape: Shape, weight_type: str) -> DrafterSpec:
    """A draft model of its own weights; it is small, so its graphs are made in memory."""
    scratch = path / "draft.scratch"
    kind = "fp32" if weight_type == "fp32" else "fp16"
    with Weights(scratch, kind, seed=2) as weights:
        model = decoder(shape, weights, listed=False)
    _take_in(model, scratch)
    scratch.unlink()
    files = write_drafter(
        path, DRAFT_KIND, StepGraph(model, None, None), steps=STEPS, device="cuda"
    )
    return DrafterSpec(
        kind=DRAFT_KIND,
        checkpoint=f"random {shape.name}",
        revision="",
        sha256="",
        longest=max(STEPS),
        draft_vocab=shape.vocabulary,
        top_k=min(TOP_K, shape.vocabulary),
        graphs=files.graphs,
        weights=files.weights,
        layers=shape.layers,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
    )


def _take_in(model: object, file: Path) -> None:
    """Have the tensors that lie in `file` in the model itself."""
    content = file.read_bytes()
    for tensor in model.graph.initializer:  # type: ignore[attr-defined]
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries:
            begin, length = int(entries["offset"]), int(entries["length"])
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = content[begin : begin + length]


def tokenizer_of(vocabulary: int) -> Tokenizer:
    """Byte-level without merges, filled up with tokens that no text has."""
    tokens = [*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [f"<{number}>" for number in range(len(tokens), vocabulary)]
    known = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL])
    return tokenizer
