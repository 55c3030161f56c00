"""llama.cpp, by the server in `xllamacpp`: plain, by each of its n-gram drafters, or with a draft
model."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import gguf_files
import xllamacpp as llama

_TYPE = "COMMON_SPECULATIVE_TYPE_"


class Peer:
    """Settings: `weights`, the checkpoint's own file (`own`) or a type it is quantised to anew;
    `speculative`, fields of llama.cpp's group of that name: `type`, and for each of its groups
    theirs; `draft`, the type of a draft model; `params`, of the server."""

    def load(self, weights: Any, threads: int, settings: dict[str, Any]) -> dict[str, Any]:
        params = llama.CommonParams()
        params.model.path = gguf_files.target(weights, settings["weights"])
        params.n_ctx, params.n_parallel, params.verbosity = 4096, 1, 0
        for name, value in settings.get("params", {}).items():
            setattr(params, name, value)
        speculative = params.speculative
        for group in (params, speculative.draft):
            group.cpuparams.n_threads = group.cpuparams_batch.n_threads = threads
        for name, value in settings.get("speculative", {}).items():
            if name == "type":
                speculative.types = [getattr(llama.common_speculative_type, _TYPE + value)]
            else:
                for field, number in value.items():
                    setattr(getattr(speculative, name), field, number)
        if "draft" in settings:
            speculative.draft.mparams.path = gguf_files.draft(weights, settings["draft"])
        self._server = llama.Server(params)
        versions = {
            "xllamacpp": llama.__version__ if hasattr(llama, "__version__") else "unknown",
            "built for": llama.get_system_info(),
        }
        return {"versions": versions}

    def answer(self, ids: list[int], max_tokens: int) -> dict[str, Any]:
        body = {"prompt": ids, "n_predict": max_tokens, "temperature": 0, "return_tokens": True}
        request = urllib.request.Request(
            f"{self._server.listening_address}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        started = time.perf_counter()
        with urllib.request.urlopen(request) as response:
            text = response.read()
        ended = time.perf_counter()
        found = json.loads(text)
        timings = found["timings"]
        answer = {
            "ids": found["tokens"],
            "ms": (ended - started) * 1e3,
            "ttft_ms": timings["prompt_ms"],
        }
        if "draft_n" in timings:
            answer |= {"drafted": timings["draft_n"], "accepted": timings["draft_n_accepted"]}
        return answer
