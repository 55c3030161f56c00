"""The package's own checkpoint in a form that every peer reads: a directory of fp32 weights.

A GGUF file stays beside it for the peers that read one. The draft model comes with the
embeddings that it shares with its target. Both are written once, into the cache.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.setup import progress
from models.errors import UserError
from models.locations import cache_directory
from models.package import Package

_FILE = "model.safetensors"
_EMBEDDINGS = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Forms:
    """`directory` holds what is made of this checkpoint, `target` and `draft` are directories of
    fp32 weights. `gguf` is the checkpoint's own file where it came as one; `draft` is None where
    there is no draft model. `eos` ends an answer."""

    directory: Path
    target: Path
    gguf: Path | None
    draft: Path | None
    eos: tuple[int, ...]

    def wire(self) -> dict[str, Any]:
        """As a peer's process takes it."""
        return {
            "directory": str(self.directory),
            "target": str(self.target),
            "gguf": None if self.gguf is None else str(self.gguf),
            "draft": None if self.draft is None else str(self.draft),
            "eos": list(self.eos),
        }


def write_forms(package: Package, checkpoint: str | None, draft: Path | None) -> Forms:
    """`checkpoint` as `python -m export --target` takes it; None is the demo's.

    Raises `UserError` where that is not what the package was made of, or cannot be read.
    """
    from export.sources import demo, locate, weights_sha256

    source = demo() if checkpoint is None else locate(checkpoint, "--checkpoint")
    digest = weights_sha256(source)
    spec = package.manifest.target
    if digest != spec.sha256:
        raise UserError(
            f"the package was made of {spec.checkpoint} (sha256 {spec.sha256[:12]}), not of"
            f" {source.name} ({digest[:12]}): name its checkpoint with --checkpoint.",
            code="checkpoint_mismatch",
            param="checkpoint",
        )
    directory = cache_directory() / "peers" / "weights" / digest[:16]
    target = directory / "target"
    once(target, lambda into: _write_target(source, into))
    drafts = None
    if draft is not None:
        drafts = directory / f"draft-{_directory_key(draft)}"
        once(drafts, lambda into: _write_draft(draft, target, into))
    gguf = source.directory / source.gguf if source.gguf else None
    return Forms(directory, target, gguf, drafts, tuple(spec.eos_ids))


def once(path: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a directory that becomes `path`, unless it is there already."""
    if path.is_dir():
        return
    progress(f"peers: writing {path.name}")
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    partial.rename(path)


def _write_target(source: Any, into: Path) -> None:
    from export.checkpoint import inspect_source, load_checkpoint

    checkpoint = load_checkpoint(source, inspect_source(source))
    model = checkpoint.model
    # Peers end an answer where ours does, and decode greedily without being told otherwise.
    model.config.eos_token_id = list(checkpoint.eos_ids)
    model.generation_config.eos_token_id = list(checkpoint.eos_ids)
    model.generation_config.do_sample = False
    model.save_pretrained(into)
    checkpoint.tokenizer.eos_token = checkpoint.eos_text
    checkpoint.tokenizer.save_pretrained(into)


def _write_draft(draft: Path, target: Path, into: Path) -> None:
    """The trained draft model with its target's embeddings and tokenizer."""
    from safetensors.torch import load_file, save_file

    own = json.loads((draft / "config.json").read_text(encoding="utf-8"))
    lender = json.loads((target / "config.json").read_text(encoding="utf-8"))
    tensors = {name: value.float() for name, value in load_file(draft / _FILE).items()}
    if _EMBEDDINGS not in tensors:
        if own["hidden_size"] != lender["hidden_size"] or not lender["tie_word_embeddings"]:
            raise UserError(
                f"{draft} cannot take its target's embeddings: it has another width, or the"
                " target has a head of its own.",
                code="draft_invalid",
                param="draft",
            )
        tensors[_EMBEDDINGS] = load_file(target / _FILE)[_EMBEDDINGS]
    save_file(tensors, into / _FILE, metadata={"format": "pt"})
    kept = {name: value for name, value in own.items() if name not in ("target", "training")}
    shared = ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size")
    kept |= {name: lender[name] for name in shared if name in lender}
    kept |= {"tie_word_embeddings": True, "dtype": "float32"}
    (into / "config.json").write_text(json.dumps(kept, indent=2), encoding="utf-8")
    for path in target.iterdir():
        if path.name.startswith(("tokenizer", "special_tokens", "chat_template", "generation_")):
            shutil.copy(path, into / path.name)


def _directory_key(draft: Path) -> str:
    from export.sources import Source, weights_sha256

    if not (draft / _FILE).is_file():
        raise UserError(
            f"{draft} is not a draft model: it has no {_FILE}.",
            code="draft_invalid",
            param="draft",
        )
    return weights_sha256(Source(draft.name, "", draft))[:12]
