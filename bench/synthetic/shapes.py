"""Targets of any shape: a package that is there, or one of random weights, made once and cached.

What a run costs depends on the shape of the weights, not on what they say: random ones answer how
speculation would pay on a model of another size.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.ranges import usage
from bench.setup import progress
from bench.synthetic.deepening import EXPORTED as LAYERS
from bench.synthetic.deepening import deepen
from bench.synthetic.random_checkpoint import FEWEST_TOKENS
from bench.synthetic.widening import EXPORTED as TOKENS
from bench.synthetic.widening import widen
from export.recipe import recipe
from models.errors import UserError
from models.locations import cache_directory, default_package_path
from models.package import MANIFEST, load_package

DEMO = "demo"
CONTEXT = 2048

_QWEN2_05B: Mapping[str, Any] = MappingProxyType(
    {
        "model_type": "qwen2",
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
    }
)
"""That of Qwen2.5-0.5B."""

_LLAMA_1B: Mapping[str, Any] = MappingProxyType(
    {
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
)
"""That of Llama-3.2-1B."""

RANDOM: Mapping[str, Mapping[str, Any]] = MappingProxyType({"0.5b": _QWEN2_05B, "1b": _LLAMA_1B})


EVEN = ("llama", "mistral", "phi3", "qwen2", "qwen3")
"""Architectures whose layers are all alike."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`config` is that of transformers, of a model whose weights are random; `name` is for files
    and people."""

    name: str
    config: Mapping[str, Any]

    @property
    def package(self) -> Path:
        """Where it is cached: by all that decides what is in it."""
        known = json.dumps({**self.config, "context": CONTEXT, "recipe": recipe()}, sort_keys=True)
        digest = hashlib.sha256(known.encode()).hexdigest()[:12]
        return cache_directory() / "packages" / f"random-{self.name}-{digest}"


def package_of(text: str) -> Path:
    """The package that `--shape` means, made where it is not there yet.

    Raises `UserError` for what is no shape, and where it cannot be exported.
    """
    if text == DEMO:
        return default_package_path()
    if text not in RANDOM and (Path(text) / MANIFEST).is_file():
        return Path(text)
    shape = Shape(text, RANDOM[text]) if text in RANDOM else _read(text)
    try:
        load_package(shape.package)
    except UserError:
        _make(shape)
    return shape.package


def _read(text: str) -> Shape:
    """The shape of a model's `config.json`, or of the directory that holds one."""
    path = Path(text)
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        named = ", ".join((DEMO, *RANDOM))
        raise usage("shape", text, f"is none of {named}, no package and no config.json of a model")
    if config["model_type"] not in EVEN or config.get("num_hidden_layers", 0) < LAYERS:
        raise usage("shape", text, f"takes {', '.join(EVEN)} models of {LAYERS} layers or more")
    if not config.get("vocab_size", 0) > FEWEST_TOKENS:
        raise usage("shape", text, f"takes models of more than {FEWEST_TOKENS} tokens")
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return Shape(name.lower(), config)


def _make(shape: Shape) -> None:
    """Random weights in two layers and few tokens, exported as every checkpoint is; then made as
    deep and as wide as wanted."""
    progress(f"making a package of random weights, {shape.name}: this takes minutes, once")
    packages = shape.package.parent
    packages.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".random-", dir=packages) as name:
        checkpoint, made = Path(name) / f"random-{shape.name}", Path(name) / "package"
        command = [sys.executable, "-m", "bench.synthetic.random_checkpoint", str(checkpoint)]
        vocabulary = int(shape.config["vocab_size"])
        small = {"num_hidden_layers": LAYERS, "vocab_size": min(vocabulary, TOKENS)}
        _run(shape, command, json.dumps({**shape.config, **small}))
        options = ["--dtype", "w8a8", "--context", str(_context(shape)), "--out", str(made)]
        _run(shape, [sys.executable, "-m", "export", "--target", str(checkpoint), *options])
        deepen(made, shape.config["num_hidden_layers"])
        if vocabulary > TOKENS:
            widen(made, vocabulary)
        if shape.package.exists():
            shutil.rmtree(shape.package)
        made.rename(shape.package)


def _context(shape: Shape) -> int:
    return min(CONTEXT, int(shape.config.get("max_position_embeddings", CONTEXT)))


def _run(shape: Shape, command: list[str], given: str = "") -> None:
    """In a process of its own, whose memory comes back with its end."""
    done = subprocess.run(
        command, input=given, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise UserError(
            f"no package of random weights could be made for --shape {shape.name}:"
            f" {words[-1] if words else f'status {done.returncode}'}",
            code="shape_failed",
            param="shape",
        )
