"""What the target makes of a corpus: features and the best of its next-token distributions.

A store is a directory beside the corpus with a directory per shard, there whole or not at all:
`features.npy` float16 [tokens, 4 * hidden] (three taps, then the last hidden state),
`places.npy` int32 [M] (tokens of the shard behind which the distribution is known, rising),
`top_ids.npy` int32 and `top_logs.npy` float16 [M, K] (the K likeliest next tokens and their
log-probabilities, falling). All run on the package's own graph for one row, chunk by chunk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from export.features import (
    HIDDEN,
    TAPS,
    Features,
    add_features,
    default_tap_layers,
    without_features,
)
from export.rows import derive_rows
from export.training.corpus import Conversation, read_shard
from export.writer import abandoned, link_or_copy, locked
from models.package import Package, TargetSpec
from models.providers import load_onnxruntime, select_provider
from models.session import Session

CHUNK = 128
TOP = 32
PROMPT_SHARE = 0.5
PROMPT_RUN = 8
"""The distribution is kept behind all tokens of answers and behind a share of the prompts' tokens,
in runs of this many: steps unrolled from one place need the places that follow."""

_LEAST_BUFFER = 512
_MOST = 65504.0


@dataclass(frozen=True, slots=True)
class Observed:
    """A text as the target sees it; rows of `top_ids` and `top_logs` belong to `places`."""

    features: NDArray[np.float16]
    places: NDArray[np.int64]
    top_ids: NDArray[np.int32]
    top_logs: NDArray[np.float16]


class Observer:
    """The target's graph for one row with its features as outputs."""

    def __init__(self, graph: Path, target: TargetSpec, *, device: str, threads: int) -> None:
        assert target.kv_type in ("fp32", "fp16")
        self._target = target
        self._provider = select_provider("auto", device)
        session = Session(graph, self._provider, threads)
        self._session, self._binding, self._capacity = session, session.binding(), 0

    def observe(self, ids: NDArray[np.int32], places: NDArray[np.int64]) -> Observed:
        """`places` rise; at each the distribution of the token behind it is kept."""
        self._reserve(len(ids))
        parts = [
            self._run(ids, start, min(start + CHUNK, len(ids)), places)
            for start in range(0, len(ids), CHUNK)
        ]
        features, top_ids, top_logs = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Observed(features, places, top_ids, top_logs)

    def _reserve(self, length: int) -> None:
        if length + CHUNK <= self._capacity:
            return
        self._capacity = max(_LEAST_BUFFER, 2 * length) + CHUNK
        target, ort = self._target, load_onnxruntime()
        kind: Any = np.float32 if target.kv_type == "fp32" else np.float16
        shape = (1, target.kv_heads, self._capacity, target.head_dim)

        def buffer() -> Any:
            return ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, kind), self._provider.memory, 0)

        self._binding = self._session.binding()
        self._binding.bind_slot([(buffer(), buffer()) for _ in range(target.layers)], 0)

    def _run(
        self, ids: NDArray[np.int32], start: int, end: int, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.float16], NDArray[np.int32], NDArray[np.float16]]:
        wanted = places[(places >= start) & (places < end)] - start
        # The graph needs one row of logits at least.
        asked = wanted if len(wanted) else np.zeros(1, np.int64)
        binding, target = self._binding, self._target
        binding.feed("input_ids", ids[None, start:end].astype(np.int64))
        binding.feed("logits_index", asked.astype(np.int64))
        binding.feed("position_ids", np.arange(start, end, dtype=np.int64)[None])
        binding.feed("seqlens_k.0", np.array([end - 1], np.int32))
        binding.feed("total_length.0", np.array(end, np.int32))
        top = (len(asked), target.top_k)
        values = binding.collect("top_values", top, np.float32)
        found = binding.collect("top_ids", top, np.int64)
        logsumexp = binding.collect("logsumexp", (len(asked),), np.float32)
        kind: Any = np.float32 if target.kv_type == "fp32" else np.float16
        width = target.hidden_size
        taps = binding.collect(f"{TAPS}.0", (end - start, 3 * width), kind)
        hidden = binding.collect(f"{HIDDEN}.0", (end - start, width), kind)
        binding.run()
        logs = (values - logsumexp[:, None])[: len(wanted), :TOP]
        features = np.concatenate([taps, hidden], axis=1).clip(-_MOST, _MOST).astype(np.float16)
        return features, found[: len(wanted), :TOP].astype(np.int32), logs.astype(np.float16)


def write_observing_graph(package: Package, directory: Path) -> Path:
    """The graph of `package` for one row with all features, in `directory` with its weights."""
    directory.mkdir(parents=True, exist_ok=True)
    spec = package.manifest.target
    single = onnx.load(str(package.file(spec.graphs["1"])), load_external_data=False)
    features = Features(hidden=True, tap_layers=tap_layers(spec))
    model = derive_rows(add_features(without_features(single), features), 1)
    path = directory / "observing.onnx"
    onnx.save(model, str(path))
    weights = directory / spec.weights
    if not weights.exists():
        link_or_copy(package.file(spec.weights), weights)
    return path


def tap_layers(spec: TargetSpec) -> tuple[int, ...]:
    """What heads are trained on, whatever a head that the package has reads: the features in a
    training's directory are of these layers."""
    return default_tap_layers(spec.layers)


def known_places(conversation: Conversation, draw: np.random.Generator) -> NDArray[np.int64]:
    """Where the next token is the answer's, and a share of the prompt's places, in runs."""
    count = len(conversation.ids)
    known = np.zeros(count, bool)
    known[:-1] = conversation.mask[1:] != 0
    runs = draw.random(-(-count // PROMPT_RUN)) < PROMPT_SHARE
    known[:-1] |= np.repeat(runs, PROMPT_RUN)[: count - 1]
    return np.flatnonzero(known)


def write_features(
    observer: Observer, shards: Sequence[Path], store: Path
) -> Iterator[tuple[Path, int]]:
    """Observe the shards that `store` lacks; after each, its path and its tokens."""
    store.mkdir(parents=True, exist_ok=True)
    for path in abandoned(store, "*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
    for shard in shards:
        place = store / shard.stem
        if place.is_dir():
            continue
        conversations = read_shard(shard)
        draw = np.random.default_rng([int(part) for part in shard.stem.split("-")[1:]])
        scratch = store / f"{shard.stem}.{os.getpid()}.tmp"
        scratch.mkdir()
        try:
            with locked(scratch):
                _write_shard(observer, conversations, draw, scratch)
                # Another process may have been quicker; what it wrote is the same.
                if not place.is_dir():
                    scratch.rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        yield shard, sum(len(conversation.ids) for conversation in conversations)


def _write_shard(
    observer: Observer,
    conversations: Sequence[Conversation],
    draw: np.random.Generator,
    place: Path,
) -> None:
    begin, places, top_ids, top_logs = 0, [], [], []
    features: NDArray[np.float16] | None = None
    total = sum(len(conversation.ids) for conversation in conversations)
    for conversation in conversations:
        seen = observer.observe(conversation.ids, known_places(conversation, draw))
        if features is None:
            shape = (total, seen.features.shape[1])
            features = _reserved(place / "features.npy", shape)
        features[begin : begin + len(conversation.ids)] = seen.features
        places.append(seen.places + begin)
        top_ids.append(seen.top_ids)
        top_logs.append(seen.top_logs)
        begin += len(conversation.ids)
    np.save(place / "places.npy", np.concatenate(places).astype(np.int32))
    np.save(place / "top_ids.npy", np.concatenate(top_ids))
    np.save(place / "top_logs.npy", np.concatenate(top_logs))


def _reserved(path: Path, shape: tuple[int, int]) -> NDArray[np.float16]:
    """A mapped array whose space on the disk is taken: writing into a map that finds none left
    kills the process."""
    mapped: NDArray[np.float16] = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float16, shape=shape
    )
    with path.open("rb+") as stream:
        os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
    return mapped
