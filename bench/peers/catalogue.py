"""The peers: what is installed for each, and every configuration that is tried.

A configuration is a form of the weights and a way to draft. `settings` are those of the peer's
adapter, see there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Part:
    """One half of a configuration: a form of the weights, or a way to draft."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Peer:
    """`adapter` is a module of `bench.peers.adapters`; `without` are dependencies that would be
    installed and are not used."""

    name: str
    adapter: str
    requirements: tuple[str, ...]
    weights: tuple[Part, ...]
    modes: tuple[Part, ...]
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Configuration:
    peer: Peer
    weights: Part
    mode: Part

    @property
    def name(self) -> str:
        return f"{self.peer.name} {self.weights.name} {self.mode.name}"

    @property
    def plain(self) -> bool:
        return self.mode.name == PLAIN

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.weights.settings, **self.mode.settings}


_PLAIN = Part(PLAIN, {})
_TORCH = "torch==2.13.0"


def _llama_ngram(kind: str, **fields: int) -> Part:
    """A drafter as it comes, or with `fields` of its group."""
    group = kind.replace("-", "_")
    name = " ".join([kind, *(f"{field} {value}" for field, value in fields.items())])
    return Part(
        name, {"speculative": {"type": group.upper(), **({group: fields} if fields else {})}}
    )


def _llama_draft(length: int) -> Part:
    speculative = {"type": "DRAFT_SIMPLE", "draft": {"n_max": length}}
    return Part(f"draft {length}", {"draft": "Q8_0", "speculative": speculative})


LLAMA_CPP = Peer(
    "llama.cpp",
    "llama_cpp",
    ("xllamacpp==2026.10.11549", "gguf==0.19.0"),
    (
        Part("Q4_1", {"weights": "own"}),
        Part("Q4_0", {"weights": "Q4_0"}),
        Part("Q8_0", {"weights": "Q8_0"}),
    ),
    (
        _PLAIN,
        _llama_ngram("ngram-simple"),
        _llama_ngram("ngram-simple", size_n=3, size_m=6),
        _llama_ngram("ngram-map-k"),
        _llama_ngram("ngram-map-k", size_n=3, size_m=6),
        _llama_ngram("ngram-map-k4v"),
        _llama_ngram("ngram-mod"),
        _llama_ngram("ngram-cache"),
        _llama_draft(2),
        _llama_draft(3),
    ),
)


def _genai_ngram(name: str, **options: Any) -> Part:
    return Part(f"n-gram {name}", {"speculative": {"ngram_size": 3, **options}})


def _genai_draft(length: int) -> Part:
    return Part(f"draft {length}", {"draft": "int4", "speculative": {"max_draft_tokens": length}})


ONNXRUNTIME_GENAI = Peer(
    "onnxruntime-genai",
    "ort_genai",
    (
        "onnxruntime-genai==0.18.0",
        "onnxruntime==1.32.0",
        _TORCH,
        "transformers==5.5.4",
        "onnx==1.23.2",
        "onnx-ir==1.1.0",
    ),
    (
        Part("int4", {"precision": "int4"}),
        Part("int4 block 128", {"precision": "int4", "options": {"block_size": "128"}}),
        Part(
            "int4 k-quant mixed", {"precision": "int4", "options": {"algo_config": "k_quant_mixed"}}
        ),
        Part("int8", {"precision": "int8"}),
        Part("int8 block 128", {"precision": "int8", "options": {"block_size": "128"}}),
    ),
    (
        _PLAIN,
        _genai_ngram("4", max_draft_tokens=4),
        _genai_ngram("adaptive", max_draft_tokens=8, min_adaptive_k=2, ngram_chained_lookup=True),
        _genai_draft(1),
        _genai_draft(2),
    ),
)


def _openvino_lookup(length: int) -> Part:
    generation = {"num_assistant_tokens": length, "max_ngram_size": 3}
    return Part(
        f"prompt lookup {length}",
        {"properties": {"prompt_lookup": True}, "generation": generation},
    )


def _openvino_draft(length: int) -> Part:
    return Part(
        f"draft {length}", {"draft": "int8", "generation": {"num_assistant_tokens": length}}
    )


OPENVINO = Peer(
    "OpenVINO GenAI",
    "ov_genai",
    (
        "openvino-genai==2026.4.1.0",
        "optimum-intel==2.2.0",
        "nncf==3.4.0",
        _TORCH,
        "transformers==5.5.4",
    ),
    (
        Part("int8", {"format": "int8"}),
        Part("int4", {"format": "int4", "options": ["--group-size", "64"]}),
        Part("int4 symmetric", {"format": "int4", "options": ["--group-size", "64", "--sym"]}),
        Part("GGUF", {"format": "gguf"}),
        Part("fp32", {"format": "fp32"}),
    ),
    (
        _PLAIN,
        Part("SDPA", {"properties": {"ATTENTION_BACKEND": "SDPA"}}),
        _openvino_lookup(3),
        _openvino_lookup(6),
        _openvino_draft(1),
        _openvino_draft(2),
    ),
    without=("torchvision",),
)


def _assisted(length: int) -> Part:
    fields = {"num_assistant_tokens": length, "num_assistant_tokens_schedule": "constant"}
    return Part(f"assisted {length}", {"draft": {**fields, "assistant_confidence_threshold": 0.0}})


FP32 = Part("fp32", {"dtype": "float32", "attention": "sdpa"})

TRANSFORMERS = Peer(
    "transformers",
    "hf_transformers",
    (_TORCH, "transformers==4.57.6", "accelerate==1.15.0"),
    (FP32, Part("bf16", {"dtype": "bfloat16", "attention": "sdpa"})),
    (
        _PLAIN,
        Part("prompt lookup 5", {"generate": {"prompt_lookup_num_tokens": 5}}),
        Part("prompt lookup 10", {"generate": {"prompt_lookup_num_tokens": 10}}),
        _assisted(2),
        Part("assisted", {"draft": {}}),
    ),
)

PEERS = (LLAMA_CPP, ONNXRUNTIME_GENAI, OPENVINO, TRANSFORMERS)


def configurations(peer: Peer) -> list[Configuration]:
    return [Configuration(peer, weights, mode) for weights in peer.weights for mode in peer.modes]


REFERENCE = Configuration(TRANSFORMERS, FP32, _PLAIN)
"""The fp32 model, which judges every answer."""
