"""What transformers says of the same tokens. Torch is imported here, and only when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import UserError


class TransformersReference:
    """A causal language model of transformers in float32 on the CPU."""

    def __init__(self, checkpoint: Path, threads: int | None) -> None:
        """Raises `UserError` where torch, transformers or the checkpoint are missing."""
        try:
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise UserError(
                f"{error.name} is not installed; `pip install outpace[export]` brings it.",
                code="reference_missing",
            ) from None
        if not (checkpoint / "config.json").is_file():
            raise UserError(
                f"{checkpoint} has no config.json; give the directory of a checkpoint.",
                code="reference_missing",
                param="reference_checkpoint",
            )
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(
                checkpoint, dtype=torch.float32, local_files_only=True
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"{checkpoint} cannot be loaded: {error}",
                code="reference_missing",
                param="reference_checkpoint",
            ) from None
        self._torch = torch
        self._model = model.eval()

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
