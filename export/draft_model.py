"""A draft model: another checkpoint, smaller than the target and of its vocabulary.

Any supported architecture will do, from a hub id, a directory or a GGUF file. One form more is
read: a directory without `embed_tokens` and `lm_head` whose config.json says
`"outpace_embeddings": "target"`, or names its target as trained drafters do. It has those of the
target, and its tokenizer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from export.architectures import max_context
from export.checkpoint import Checkpoint, cut_head, inspect_source, load_checkpoint
from export.decoder import trace_decoder
from export.graph import Graph
from export.heads.facts import TargetFacts
from export.heads.step import StepGraph
from export.passes import canonicalise
from export.sources import Source
from export.tokenizers import NamedTokenizer, check_same_tokens
from models.errors import UserError

OPTION = "--draft"
BORROWS = "outpace_embeddings"
TARGET = "target"
_EMBEDDINGS, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_BORROWED = "borrowed.safetensors"


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A checkpoint, its model in memory, that can draft for the target.

    `positions` is what its graph has room for. `context_length` is as in `DrafterSpec`: where its
    own context ends if that is before the target's, else None. `ids` as in `StepGraph`.
    """

    checkpoint: Checkpoint
    positions: int
    context_length: int | None
    ids: NDArray[np.int64] | None


def load_draft(source: Source, target: TargetFacts, tokenizer: NamedTokenizer) -> DraftModel:
    """The draft model in `source`; `tokenizer` is the target's.

    Raises `UserError` that says what is wrong with it as a draft model of this target:
    `tokenizer_mismatch`, or `draft_invalid` (another target's, another width, too few embeddings),
    or what any checkpoint is refused for.
    """
    with _told_as(OPTION), _complete(source, target, tokenizer) as complete:
        checkpoint = load_checkpoint(complete, inspect_source(complete))
    checkpoint = dataclasses.replace(checkpoint, source=source)
    library = checkpoint.tokenizer.backend_tokenizer
    check_same_tokens(tokenizer, NamedTokenizer(source.name, library), OPTION)
    rows = int(checkpoint.model.get_input_embeddings().weight.shape[0])
    if rows < target.vocab_size:
        raise _invalid(
            source, f"embeds {rows} ids, {target.name} has {target.vocab_size} it may be given"
        )
    vocab_size = min(checkpoint.vocab_size, target.vocab_size)
    cut_head(checkpoint.model, vocab_size)
    positions = min(max_context(checkpoint.config), target.context)
    return DraftModel(
        checkpoint=dataclasses.replace(checkpoint, vocab_size=vocab_size),
        positions=positions,
        context_length=positions if positions < target.context else None,
        ids=None if vocab_size == target.vocab_size else np.arange(vocab_size),
    )


def trace_step(draft: DraftModel, scratch: Path) -> StepGraph:
    """The step of a draft model: as the target's graph for one row, with `logits` alone.

    A layer with a sliding window (`export.rows.narrowest_window`) cannot draft trees that reach
    past it, as a target's cannot verify them.
    """
    checkpoint = draft.checkpoint
    traced = trace_decoder(checkpoint.model, checkpoint.architecture, draft.positions, scratch)
    model = canonicalise(traced)
    outputs = model.graph.output
    kept = [o for o in outputs if o.name == "logits" or o.name.startswith("present.")]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    Graph(model).finish()
    return StepGraph(model=model, entry=None, ids=draft.ids)


def draft_greedily(
    model: Any, ids: Sequence[int], steps: int
) -> tuple[list[int], NDArray[np.float32]]:
    """The reference: what transformers' model says next, `steps` tokens and their logits."""
    drafted: list[int] = []
    rows: list[NDArray[np.float32]] = []
    fed, cache = torch.tensor([list(ids)]), None
    with torch.no_grad():
        for _ in range(steps):
            output = model(fed, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            rows.append(output.logits[0, -1].float().numpy())
            drafted.append(int(rows[-1].argmax()))
            fed = torch.tensor([[drafted[-1]]])
    return drafted, np.stack(rows)


@contextlib.contextmanager
def _complete(source: Source, target: TargetFacts, tokenizer: NamedTokenizer) -> Iterator[Source]:
    """`source`, or where it borrows the target's embeddings a directory that has them."""
    config = _config(source)
    if config is not None:
        _check_no_head(source, config)
    if config is None or not _borrows(source, config):
        yield source
        return
    _check_lender(source, config, target)
    with tempfile.TemporaryDirectory(prefix="outpace-") as name:
        directory = Path(name)
        for path in source.directory.iterdir():
            if path.name != "config.json" and not path.name.endswith(".index.json"):
                # Beside a file called model.safetensors transformers would read no other.
                renamed = f"own-{path.name}" if path.suffix == ".safetensors" else path.name
                (directory / renamed).symlink_to(path.resolve())
        _lend(source, directory, config, target)
        _lend_tokenizer(directory, tokenizer)
        try:
            yield dataclasses.replace(source, directory=directory)
        except UserError as error:
            # Nobody knows the directory that was made up here.
            told = error.message.replace(name, str(source.directory))
            raise UserError(told, code=error.code, param=error.param) from error


def _config(source: Source) -> dict[str, Any] | None:
    """None where there is none to be read, which loading will say."""
    if source.gguf is not None:
        return None
    try:
        config = json.loads((source.directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _check_no_head(source: Source, config: Mapping[str, Any]) -> None:
    """A head is something else, for all that it is called a Llama too."""
    named = [*(config.get("architectures") or ()), *(key for key in config if "medusa" in key)]
    for kind in ("eagle", "medusa", "mtp"):
        if any(kind in str(name).lower() for name in named):
            raise _invalid(source, f"is a head, not a draft model: give it as --{kind}")


def _borrows(source: Source, config: Mapping[str, Any]) -> bool:
    if config.get(BORROWS) != TARGET and not isinstance(config.get(TARGET), Mapping):
        return False
    return _EMBEDDINGS not in _tensors(source, source.directory)


def _tensors(source: Source, directory: Path) -> dict[str, str]:
    """The file of each tensor in `directory`, which has those of `source`."""
    found: dict[str, str] = {}
    for path in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as tensors:
                found |= dict.fromkeys(tensors.keys(), path.name)
        except (OSError, SafetensorError) as error:
            raise _invalid(source, f"has a corrupt file {path.name} ({error})") from None
    return found


def _check_lender(source: Source, config: Mapping[str, Any], target: TargetFacts) -> None:
    named = config.get(TARGET)
    if isinstance(named, Mapping) and named.get("sha256") != target.sha256:
        theirs, ours = str(named.get("sha256"))[:12], target.sha256[:12]
        raise _invalid(
            source,
            f"borrows the embeddings of {named.get('checkpoint')} (sha256 {theirs}),"
            f" not those of {target.name} (sha256 {ours})",
        )
    width = config.get("hidden_size")
    if width != target.hidden:
        raise _invalid(
            source,
            f"borrows its target's embeddings and is {width} wide;"
            f" {target.name} is {target.hidden}",
        )
    known = (target.vocab_size, int(target.embeddings.shape[0]))
    if config.get("vocab_size", target.vocab_size) not in known:
        raise _invalid(
            source,
            f"borrows its target's embeddings and has a vocabulary of {config['vocab_size']};"
            f" {target.name} has {target.vocab_size}",
        )


def _lend(source: Source, directory: Path, config: Mapping[str, Any], target: TargetFacts) -> None:
    """The target's embeddings and head as one more shard, in fp32, without padding."""
    rows = {_EMBEDDINGS: target.embeddings, _HEAD: target.lm_head}
    lent = {name: tensor[: target.vocab_size].contiguous() for name, tensor in rows.items()}
    # Tied, they would be one memory under two names, which no file may hold.
    lent[_HEAD] = lent[_HEAD].clone()
    save_file(lent, directory / _BORROWED, metadata={"format": "pt"})
    index = json.dumps({"metadata": {}, "weight_map": _tensors(source, directory)})
    (directory / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    own = {**config, "vocab_size": target.vocab_size, "tie_word_embeddings": False}
    (directory / "config.json").write_text(json.dumps(own), encoding="utf-8")


def _lend_tokenizer(directory: Path, tokenizer: NamedTokenizer) -> None:
    if (directory / "tokenizer.json").exists():
        return
    (directory / "tokenizer.json").write_text(tokenizer.backend.to_str(), encoding="utf-8")
    declared = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").unlink(missing_ok=True)
    (directory / "tokenizer_config.json").write_text(json.dumps(declared), encoding="utf-8")


@contextlib.contextmanager
def _told_as(option: str) -> Iterator[None]:
    """What is wrong with any checkpoint is said of `option` here."""
    try:
        yield
    except UserError as error:
        raise UserError(error.message, code=error.code, param=option) from error


def _invalid(source: Source, problem: str) -> UserError:
    return UserError(f"{source.name} {problem}.", code="draft_invalid", param=OPTION)
