"""Features and distributions of a corpus are those of the checkpoint in torch."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from export.feature_parity import torch_features
from export.features import Features
from export.training.corpus import Conversation, ShardWriter
from export.training.features import (
    CHUNK,
    PROMPT_SHARE,
    TOP,
    Observer,
    known_places,
    tap_layers,
    write_features,
    write_observing_graph,
)
from models.package import Package
from tests.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = make_checkpoint(tmp_path_factory.mktemp("model"), "llama")
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


@pytest.fixture(scope="module")
def observer(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Observer:
    graph = write_observing_graph(package, tmp_path_factory.mktemp("graph"))
    return Observer(graph, package.manifest.target, device="cpu", threads=1)


def _text(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 200, length).astype(np.int32)


@pytest.mark.parametrize("length", [5, CHUNK + 40])
def test_a_text_is_seen_as_torch_sees_it(
    observer: Observer, package: Package, model: Any, length: int
) -> None:
    ids, spec = _text(length), package.manifest.target
    places = np.array([1, length - 2])
    seen = observer.observe(ids, places)
    layers = tap_layers(spec)
    expected = torch_features(model, tuple(ids.tolist()), Features(True, layers))
    whole = np.concatenate([expected["taps"], expected["hidden"]], axis=1)
    np.testing.assert_allclose(seen.features.astype(np.float32), whole, rtol=5e-3, atol=5e-3)
    with torch.no_grad():
        logs = model(torch.from_numpy(ids[None].astype(np.int64))).logits[0].log_softmax(-1)
    best = logs[places].topk(min(TOP, logs.shape[1]))
    np.testing.assert_allclose(seen.top_logs.astype(np.float32), best.values, rtol=0, atol=2e-2)
    assert seen.top_ids[:, 0].tolist() == best.indices[:, 0].tolist()


def test_a_package_with_drafters_is_seen_as_without(
    observer: Observer, drafting: Package, tmp_path: Path
) -> None:
    spec = drafting.manifest.target
    assert tap_layers(spec) == tap_layers(dataclasses.replace(spec, tap_layers=()))
    other = Observer(write_observing_graph(drafting, tmp_path), spec, device="cpu", threads=1)
    ids, places = _text(40), np.arange(40)
    seen, expected = other.observe(ids, places), observer.observe(ids, places)
    assert np.array_equal(seen.features, expected.features)
    assert np.array_equal(seen.top_ids, expected.top_ids)


def test_a_later_text_sees_nothing_of_the_one_before(observer: Observer) -> None:
    places = np.arange(20)
    alone = observer.observe(_text(20, seed=1), places)
    observer.observe(_text(2 * CHUNK - 30, seed=2), places)
    again = observer.observe(_text(20, seed=1), places)
    assert np.array_equal(alone.features, again.features)
    assert np.array_equal(alone.top_logs, again.top_logs)


def test_known_are_all_of_answers_and_some_of_prompts() -> None:
    mask = np.zeros(4000, np.uint8)
    mask[3000:] = 1
    conversation = Conversation(_text(4000), mask, "chat", False)
    places = known_places(conversation, np.random.default_rng(0))
    assert places[-1] == 3998
    assert np.isin(np.arange(2999, 3999), places).all()
    share = (places < 2999).sum() / 2999
    assert abs(share - PROMPT_SHARE) < 0.05


def test_shards_are_there_whole_or_not_at_all(
    observer: Observer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ShardWriter(tmp_path / "corpus", seed=3)
    for seed in range(2):
        mask = np.r_[np.zeros(10, np.uint8), np.ones(20, np.uint8)]
        writer.append([Conversation(_text(30, seed), mask, "chat", False)] * 2)
    shards, store = sorted((tmp_path / "corpus").iterdir()), tmp_path / "features"
    steps = write_features(observer, shards, store)
    assert next(steps) == (shards[0], 60)
    observe, calls = observer.observe, []

    def breaks(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return observe(*arguments)

    monkeypatch.setattr(observer, "observe", breaks)
    with pytest.raises(KeyboardInterrupt):
        list(write_features(observer, shards, store))
    assert [path.name for path in store.iterdir()] == [shards[0].stem]
    monkeypatch.undo()
    killed = store / f"{shards[1].stem}.1.tmp"
    killed.mkdir()
    os.utime(killed, (0, 0))
    assert [path for path, _ in write_features(observer, shards, store)] == [shards[1]]
    assert not killed.exists()
    found = np.load(store / shards[1].stem / "features.npy")
    np.testing.assert_array_equal(found[:30], found[30:])
