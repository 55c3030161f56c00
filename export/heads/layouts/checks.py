"""Refusals: a head that is another target's, or not whole, by what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from export.heads.facts import TargetFacts
from export.heads.layouts.files import HeadFiles
from export.tokenizers import NamedTokenizer, first_difference

TARGET = "target"
"""Our own entry in a head's config.json: {"checkpoint": name, "sha256": digest} of its target."""
_LISTED = 6


def check_target(files: HeadFiles, facts: TargetFacts) -> None:
    """Refuse a head that says it was made for another target, or has another tokenizer."""
    named = files.config.get(TARGET)
    if isinstance(named, Mapping) and named.get("sha256") != facts.sha256:
        theirs, ours = str(named.get("sha256"))[:12], facts.sha256[:12]
        raise files.refused(
            f"was trained for {named.get('checkpoint')} (sha256 {theirs}),"
            f" not for {facts.name} (sha256 {ours})"
        )
    tokenizer = files.directory / "tokenizer.json"
    if tokenizer.is_file() and not facts.owns(files.directory):
        _check_tokenizer(files, facts, tokenizer)


def _check_tokenizer(files: HeadFiles, facts: TargetFacts, path: Path) -> None:
    try:
        theirs = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise files.refused(f"has an unreadable tokenizer.json ({error})") from None
    named = (NamedTokenizer(facts.name, facts.tokenizer), NamedTokenizer(files.name, theirs))
    difference = first_difference(*named)
    if difference is not None:
        raise files.refused(f"has another tokenizer than {facts.name}: {difference}")


def check_hidden(files: HeadFiles, found: int, facts: TargetFacts, what: str = "states") -> None:
    if found != facts.hidden:
        raise files.refused(
            f"has {what} {found} wide; {facts.name} has a hidden size of {facts.hidden}"
        )


def check_vocabulary(files: HeadFiles, found: int, facts: TargetFacts) -> None:
    """The target's ids, with or without those that only pad."""
    padded = int(facts.embeddings.shape[0])
    if found not in (facts.vocab_size, padded):
        known = f"{facts.vocab_size}"
        if padded != facts.vocab_size:
            known += f" ({padded} with padding)"
        raise files.refused(f"has a vocabulary of {found}; {facts.name} has {known}")


def check_draft_ids(files: HeadFiles, ids: Tensor, facts: TargetFacts) -> None:
    if not len(ids):
        raise files.refused("has an empty draft vocabulary")
    if not (int(ids.min()) >= 0 and int(ids.max()) < facts.embeddings.shape[0]):
        raise files.refused(
            f"maps its draft vocabulary to ids up to {int(ids.max())};"
            f" {facts.name} has a vocabulary of {facts.vocab_size}"
        )
    if len(torch.unique(ids)) != len(ids):
        raise files.refused("maps two entries of its draft vocabulary to one token")


def check_block(files: HeadFiles, names: Iterable[str]) -> None:
    """Refuse layers that no target of ours has."""
    for name in names:
        if ".experts." in name or name.endswith("mlp.gate.weight"):
            raise files.refused(f"has a mixture-of-experts layer ({name}), which is not supported")
        if ".kv_a_proj" in name or ".kv_b_proj" in name:
            raise files.refused(f"has multi-head latent attention ({name}), which is not supported")
        if "weight_scale" in name or name.endswith((".qweight", ".scales")):
            raise files.refused(f"has quantised weights ({name}), which is not supported")


def fill(
    module: nn.Module,
    files: HeadFiles,
    published: Callable[[str], str],
    names: Iterable[str],
    spare: Sequence[str] = (),
) -> None:
    """Load the tensors `names` of `files` into `module`, all that it has and no other.

    `published` gives a parameter's published name; what contains one of `spare` may be left over.
    """
    expected = {published(name): name for name in module.state_dict()}
    present = set(names)
    missing = sorted(expected.keys() - present)
    if missing:
        raise files.refused(f"lacks {_listed(missing)}")
    left = sorted(n for n in present - expected.keys() if not any(s in n for s in spare))
    if left:
        raise files.refused(f"has tensors that its layout does not know: {_listed(left)}")
    tensors = files.read(expected)
    state = {name: tensors[theirs] for theirs, name in expected.items()}
    for name, parameter in module.state_dict().items():
        if state[name].shape != parameter.shape:
            raise files.refused(
                f"has {published(name)} of shape {list(state[name].shape)}"
                f" where {list(parameter.shape)} is needed"
            )
        if state[name].is_floating_point() != parameter.is_floating_point():
            raise files.refused(
                f"has {published(name)} as {state[name].dtype} where {parameter.dtype} is needed"
            )
        if state[name].is_floating_point() and not bool(state[name].isfinite().all()):
            raise files.refused(f"has values in {published(name)} that are no numbers")
    module.load_state_dict(state, assign=True)
    module.eval().requires_grad_(False)


def number(
    files: HeadFiles, config: Mapping[str, Any], key: str, default: int | None = None
) -> int:
    """A whole number above zero of a config."""
    value = config.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise files.refused(f"has no usable {key} in its config.json ({value!r})")
    return value


def count(files: HeadFiles, config: Mapping[str, Any], key: str, default: int) -> int:
    """As `number`, of parts that have tensors of their own each."""
    value = number(files, config, key, default)
    if value > len(files.homes):
        raise files.refused(
            f"has the {key} {value} in its config.json, and only {len(files.homes)} tensors"
        )
    return value


def measure(
    files: HeadFiles, config: Mapping[str, Any], key: str, default: float, most: float = math.inf
) -> float:
    """A number above zero of a config, at most `most`."""
    value = config.get(key, default)
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not (0 < value <= most and value < math.inf)
    ):
        raise files.refused(f"has no usable {key} in its config.json ({value!r})")
    return float(value)


def check_rows(files: HeadFiles, needed: Mapping[str, int]) -> None:
    """Refuse sizes of a config that the tensors do not have, each by its tensor."""
    tensors = files.read(name for name in needed if name in files.homes)
    for name, tensor in tensors.items():
        if tensor.dim() == 0 or tensor.shape[0] != needed[name]:
            raise files.refused(
                f"has {name} of shape {list(tensor.shape)}"
                f" where its config.json needs {needed[name]} rows"
            )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
