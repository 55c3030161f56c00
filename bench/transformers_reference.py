"""What transformers says of the same tokens. Torch is imported here, and only when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from export.sources import Source, expanded, locate, weights_sha256
from models.errors import UserError
from models.locations import cache_directory
from models.package import TargetSpec

FLAG = "--reference-checkpoint"


def find_reference(given: Path | None, target: TargetSpec) -> Source:
    """The checkpoint at `given`; without one, the cached file that `target` was exported from.

    Raises `UserError` where there is none.
    """
    if given is None:
        return _cached(target)
    path = expanded(given, FLAG)
    if not path.exists():  # never fetched: it would be another checkpoint than the package's
        raise _missing(f"{path} does not exist; give a checkpoint's directory or a .gguf file.")
    try:
        return locate(str(path))
    except UserError as error:
        raise _missing(error.message) from None


def _cached(target: TargetSpec) -> Source:
    for path in sorted((cache_directory() / "sources").glob("*/*.gguf")):
        source = Source(target.checkpoint, target.revision, path.parent, path.name)
        if weights_sha256(source) == target.sha256:
            return source
    raise _missing(
        f"give {FLAG}: the directory or .gguf file of {target.checkpoint}, which the package was"
        " exported from. It is not in the cache, where only the demo's is kept."
    )


class TransformersReference:
    """A causal language model of transformers in float32 on the CPU."""

    def __init__(self, source: Source, threads: int | None) -> None:
        """Read as the export reads it. Raises `UserError` where torch, transformers or the
        checkpoint's files are missing."""
        try:
            import torch

            from export.checkpoint import inspect_source, load_checkpoint
        except ImportError as error:
            raise UserError(
                f"{error.name} is not installed; `pip install outpace[export]` brings it.",
                code="reference_missing",
            ) from None
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            self._model = load_checkpoint(source, inspect_source(source)).model
        except UserError as error:
            raise _missing(error.message) from None
        self._torch = torch

    def logprobs(self, ids: Sequence[int], vocab_size: int) -> NDArray[np.float64]:
        """[len(ids) - 1, V]: log-probabilities of the token behind each of `ids` but the last.

        Among the first `vocab_size` tokens: what a checkpoint has beyond them is padding, which
        no tokenizer knows. Raises `UserError` where it has fewer.
        """
        torch = self._torch
        with torch.inference_mode():
            logits = self._model(torch.tensor([ids[:-1]])).logits[0]
            if logits.shape[1] < vocab_size:
                raise UserError(
                    f"the reference knows {logits.shape[1]} tokens, the package {vocab_size}: it"
                    " was exported from another checkpoint.",
                    code="usage",
                    param="reference_checkpoint",
                )
            kept = logits[:, :vocab_size].double()
            found: NDArray[np.float64] = torch.log_softmax(kept, dim=-1).numpy()
        return found


def _missing(message: str) -> UserError:
    return UserError(message, code="reference_missing", param="reference_checkpoint")
