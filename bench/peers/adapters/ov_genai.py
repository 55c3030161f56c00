"""OpenVINO GenAI: its LLM pipeline, plain, with prompt lookup or with a draft model."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import exporting
import numpy as np
import openvino
import openvino_genai as genai


class Peer:
    """Settings: `format`, of `optimum-cli export openvino`, or `gguf`; `options` of that export;
    `properties` of the pipeline; `generation`, fields of the generation config; `draft`, the format
    of a draft model."""

    def load(self, weights: Any, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
        options = settings.get("options", [])
        properties = {"INFERENCE_NUM_THREADS": threads, **settings.get("properties", {})}
        if settings["format"] == "gguf":
            model = weights.gguf
        else:
            model = _exported(weights, weights.target, settings["format"], options)
        extra: dict[str, Any] = {}
        if "draft" in settings:
            draft = _exported(weights, weights.draft, settings["draft"], [])
            extra["draft_model"] = genai.draft_model(draft, "CPU", INFERENCE_NUM_THREADS=threads)
        self._pipeline = genai.LLMPipeline(model, "CPU", **properties, **extra)
        config = self._pipeline.get_generation_config()
        config.do_sample = False
        config.set_eos_token_id(weights.eos[0])
        config.stop_token_ids = set(weights.eos)
        for name, value in settings.get("generation", {}).items():
            setattr(config, name, value)
        self._config = config
        versions = {"openvino-genai": genai.__version__, "openvino": openvino.__version__}
        return {"versions": versions}

    def answer(self, ids: list[int], max_tokens: int) -> dict[str, Any]:
        self._config.max_new_tokens = max_tokens
        started = time.perf_counter()
        row = np.array([ids], np.int64)
        prompt = genai.TokenizedInputs(openvino.Tensor(row), openvino.Tensor(np.ones_like(row)))
        found = self._pipeline.generate(prompt, self._config)
        new = list(found.tokens[0])
        ended = time.perf_counter()
        metrics = found.perf_metrics
        return {
            "ids": new,
            "ms": (ended - started) * 1e3,
            "ttft_ms": metrics.get_ttft().mean,
            "rounds": len(metrics.raw_metrics.m_batch_sizes) - 1,
        }


def _exported(weights: Any, checkpoint: str, form: str, options: list[str]) -> str:
    def write(into: str) -> None:
        command = [str(Path(sys.executable).with_name("optimum-cli")), "export", "openvino"]
        command += ["--model", checkpoint, "--task", "text-generation-with-past"]
        command += ["--weight-format", form, *options, into]
        exporting.export(command)

    name = "-".join(["openvino", form, *(option.strip("-") for option in options)])
    path: str = weights.made(checkpoint, name, write)
    return path
