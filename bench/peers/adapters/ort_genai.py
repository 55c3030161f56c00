"""onnxruntime-genai: its generator, plain, with n-grams or with a draft model."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import exporting
import onnxruntime
import onnxruntime_genai as genai


class Peer:
    """Settings: `precision` and `options` of its model builder; `speculative`, as its options are
    called; `draft`, the precision of a draft model; `session`, options of ONNX Runtime."""

    def load(self, weights: Any, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
        options = settings.get("options", {})
        model = _built(weights, weights.target, settings["precision"], options)
        if "draft" in settings:
            draft = _built(weights, weights.draft, settings["draft"], {})
            self._directory = tempfile.TemporaryDirectory(prefix="outpace-peer-")
            model = _composed(Path(model), Path(draft), Path(self._directory.name))
        session = {"intra_op_num_threads": threads, **settings.get("session", {})}
        config = genai.Config(model)
        parts = ("decoder", "draft") if "draft" in settings else ("decoder",)
        overlay = {"model": {part: {"session_options": session} for part in parts}}
        config.overlay(json.dumps(overlay))
        self._model = genai.Model(config)
        self._speculative = settings.get("speculative", {})
        versions = {
            "onnxruntime-genai": genai.__version__,
            "onnxruntime": onnxruntime.__version__,
        }
        return {"versions": versions}

    def answer(self, ids: list[int], max_tokens: int) -> dict[str, Any]:
        started = time.perf_counter()
        params = genai.GeneratorParams(self._model)
        params.set_search_options(do_sample=False, max_length=len(ids) + max_tokens)
        if self._speculative:
            params.set_speculative_options(**self._speculative)
        generator = genai.Generator(self._model, params)
        generator.append_tokens(ids)
        generator.generate_next_token()
        first = time.perf_counter()
        while not generator.is_done():
            generator.generate_next_token()
        new = [int(id_) for id_ in generator.get_sequence(0)[len(ids) :]]
        ended = time.perf_counter()
        found = {"ids": new, "ms": (ended - started) * 1e3, "ttft_ms": (first - started) * 1e3}
        if self._speculative:
            told = generator.get_speculative_stats()
            found["drafted"] = int(told["draft_tokens_evaluated"])
            found["accepted"] = int(told["draft_tokens_accepted"])
        return found


def _built(weights: Any, checkpoint: str, precision: str, options: dict[str, str]) -> str:
    pairs = [f"{name}={value}" for name, value in options.items()]

    def build(into: str) -> None:
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        command += ["-i", checkpoint, "-o", into, "-p", precision, "-e", "cpu"]
        with tempfile.TemporaryDirectory(prefix="outpace-peer-") as scratch:
            command += ["-c", scratch]
            if pairs:
                command += ["--extra_options", *pairs]
            exporting.export(command)

    name = "-".join(["genai", precision, *pairs]).replace("=", "_").replace(":", "_")
    path: str = weights.made(checkpoint, name, build)
    return path


def _composed(target: Path, draft: Path, into: Path) -> str:
    """A model directory of two: the target's files, and the draft model's description."""
    for path in target.iterdir():
        if path.name != "genai_config.json":
            (into / path.name).symlink_to(path)
    config = json.loads((target / "genai_config.json").read_text(encoding="utf-8"))
    own = json.loads((draft / "genai_config.json").read_text(encoding="utf-8"))
    decoder = own["model"]["decoder"]
    decoder["filename"] = os.path.relpath(draft / decoder["filename"], into)
    config["model"]["draft"] = decoder
    (into / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(into)
