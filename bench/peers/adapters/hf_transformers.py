"""transformers: `generate`, plain, with prompt lookup or with an assistant model."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer


class Peer:
    """Settings: `dtype`, `attention`; `generate`, its arguments; `draft`, fields of the assistant's
    generation config."""

    def load(self, weights: Any, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(threads)
        self._model = _read(weights.target, settings)
        self._options: dict[str, Any] = dict(settings.get("generate", {}))
        if "draft" in settings:
            assistant = _read(weights.draft, settings)
            for name, value in settings["draft"].items():
                setattr(assistant.generation_config, name, value)
            self._options["assistant_model"] = assistant
        self._runs = 0
        self._model.register_forward_pre_hook(self._count)
        return {"versions": {"transformers": transformers.__version__, "torch": torch.__version__}}

    def answer(self, ids: list[int], max_tokens: int) -> dict[str, Any]:
        clock = _Clock()
        self._runs = 0
        started = time.perf_counter()
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            found = self._model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=max_tokens,
                do_sample=False,
                streamer=clock,
                **self._options,
            )
        new = found[0, len(ids) :].tolist()
        ended = time.perf_counter()
        return {
            "ids": new,
            "ms": (ended - started) * 1e3,
            "ttft_ms": ((clock.first or ended) - started) * 1e3,
            "rounds": self._runs - 1,
        }

    def judge(self, ids: list[int], answer: list[int]) -> dict[str, Any]:
        """The model's own greedy choice at each place of `answer`."""
        with torch.inference_mode():
            logits = self._model(torch.tensor([ids + answer])).logits[0, len(ids) - 1 : -1]
        return {"ids": logits.argmax(-1).tolist()}

    def _count(self, *_: Any) -> None:
        self._runs += 1


class _Clock(BaseStreamer):
    """Reads the clock when the first tokens behind the prompt come."""

    def __init__(self) -> None:
        self._prompt = True
        self.first: float | None = None

    def put(self, value: Any) -> None:
        if self._prompt:
            self._prompt = False
        elif self.first is None:
            self.first = time.perf_counter()

    def end(self) -> None:
        """Nothing is held back."""


def _read(directory: str, settings: dict[str, Any]) -> Any:
    dtype = getattr(torch, settings["dtype"])
    attention = settings["attention"]
    model: Any = AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation=attention
    )
    return model.eval()
