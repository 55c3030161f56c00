"""The kinds of drafters that can be trained: how each begins, what it learns, how it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from export.heads import layouts
from export.heads.facts import HeadInfo, TargetFacts
from export.heads.layouts.blocks import block_config
from export.heads.layouts.published import publish
from export.training.batches import Store
from export.training.beginnings import (
    TAPS,
    Sizes,
    Stream,
    begin_draft,
    begin_eagle3,
    begin_medusa,
    begin_mtp,
    begin_mtp_with,
    finish_eagle3,
    frequent_ids,
    measure,
)
from export.training.damage import explained
from export.training.drafting import ChainTask, Lesson, Task, Vocabulary
from export.training.features import tap_layers
from export.training.optimizer import Rates
from export.training.parallel import DraftTask, MedusaTask
from models.package import TargetSpec

FREQUENT = 2048
MEDUSA_HEADS = 4
_RATES = Rates()
DRAFT_LAYERS = 2


@dataclass(frozen=True, slots=True)
class Basics:
    """Of the corpus: how often ids are written [V], and the sizes of features [4 * hidden], which
    must stay what they were when a training began."""

    counts: NDArray[np.float64]
    sizes: NDArray[np.float32]

    @classmethod
    def of(cls, store: Store, facts: TargetFacts, seed: int, kept: Path) -> Basics:
        """The sizes are those in `kept`, once it is there."""
        if not kept.is_file():
            whole = slice(0, (TAPS + 1) * facts.hidden)
            scratch = kept.with_suffix(".tmp.npy")
            np.save(scratch, measure(store, whole, seed).columns)
            scratch.replace(kept)
        with explained(kept, "remove it, and the checkpoint beside it, to begin anew"):
            sizes = np.load(kept)
        return cls(store.frequencies(facts.vocab_size), sizes)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a drafter is made from; `model` is the target in transformers. `learned` is what an
    EAGLE-3 head has learned so far in the same working directory."""

    facts: TargetFacts
    model: Any
    spec: TargetSpec
    basics: Basics
    draft_vocab: int
    device: torch.device
    learned: Mapping[str, Tensor] | None = None

    def sizes(self, columns: slice) -> Sizes:
        return Sizes(self.basics.sizes[columns])

    def frequent(self, count: int) -> Tensor:
        return frequent_ids(self.basics.counts, count, self.spec.eos_ids)

    @property
    def taps(self) -> slice:
        return slice(0, TAPS * self.facts.hidden)

    @property
    def hidden(self) -> slice:
        return slice(TAPS * self.facts.hidden, (TAPS + 1) * self.facts.hidden)

    @property
    def tap_layers(self) -> tuple[int, ...]:
        return tap_layers(self.spec)

    def stream(self) -> Stream:
        """Between the embeddings and the taps."""
        taps = self.basics.sizes[self.taps].reshape(TAPS, -1)
        embeddings = float(self.facts.embeddings.square().mean().sqrt())
        sizes = zip(self.tap_layers, np.median(taps, axis=1).tolist(), strict=True)
        return Stream({0: embeddings, **dict(sizes)})

    def vocabulary(self, drafted: int | None = None) -> Vocabulary:
        """`drafted`: so many ids can be drafted."""
        frequent = self.frequent(FREQUENT).to(self.device)
        ids = None if drafted is None else self.frequent(drafted).to(self.device)
        return Vocabulary(self.facts.vocab_size, frequent, ids)


@dataclass(frozen=True, slots=True)
class Kind:
    """`begin` makes the task, `write` the published form of what was trained."""

    begin: Callable[[Setting], Task]
    write: Callable[[Task, Setting, Path], None]
    lesson: Lesson
    rates: Rates = _RATES


def _begin_eagle3(setting: Setting) -> Task:
    sizes = setting.sizes(setting.taps)
    head = begin_eagle3(setting.facts, setting.model, sizes)
    return ChainTask(
        head.to(setting.device),
        setting.taps,
        sizes.scale.to(setting.device),
        setting.vocabulary(setting.draft_vocab),
    )


def _write_eagle3(task: Task, setting: Setting, directory: Path) -> None:
    trained: Any = task.module
    facts, scale = setting.facts, setting.sizes(setting.taps).scale
    head = finish_eagle3(trained, facts, scale, setting.frequent(setting.draft_vocab))
    info = HeadInfo(
        "eagle3",
        "safeailab",
        "taps",
        tap_layers=setting.tap_layers,
        rope=facts.rope,
    )
    layouts.write(head, info, directory, facts)


def _begin_mtp(setting: Setting) -> Task:
    high = slice((TAPS - 1) * setting.facts.hidden, TAPS * setting.facts.hidden)
    unit = float(np.median(setting.sizes(high).columns))
    head = begin_mtp(setting.facts, setting.model, setting.sizes(setting.hidden), unit)
    if setting.learned is not None:
        begin_mtp_with(head, setting.learned)
    return ChainTask(
        head.to(setting.device),
        setting.hidden,
        torch.ones(setting.facts.hidden, device=setting.device),
        setting.vocabulary(),
    )


def _write_mtp(task: Task, setting: Setting, directory: Path) -> None:
    head: Any = task.module
    info = HeadInfo("mtp", "mimo", "hidden", rope=setting.facts.rope)
    layouts.write(head, info, directory, setting.facts)


def _begin_medusa(setting: Setting) -> Task:
    heads = begin_medusa(setting.facts, MEDUSA_HEADS).to(setting.device)
    return MedusaTask(heads, setting.hidden, setting.vocabulary())


def _write_medusa(task: Task, setting: Setting, directory: Path) -> None:
    heads: Any = task.module
    info = HeadInfo("medusa", "medusa", "hidden", lookahead=0)
    layouts.write(heads, info, directory, setting.facts)


def _begin_draft(setting: Setting) -> Task:
    last = setting.facts.layers - 1
    kept = sorted({round(last * i / max(DRAFT_LAYERS - 1, 1)) for i in range(DRAFT_LAYERS)})
    drafter = begin_draft(setting.facts, setting.model, kept, setting.stream()).to(setting.device)
    return DraftTask(drafter, slice(0, 1), setting.vocabulary())


def _write_draft(task: Task, setting: Setting, directory: Path) -> None:
    """A Llama checkpoint without embeddings and LM head: those are its target's."""
    drafter: Any = task.module
    facts = setting.facts
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": len(drafter.model["layers"]),
        "vocab_size": facts.vocab_size,
        "tie_word_embeddings": True,
        **block_config(facts.block, facts.rope),
    }
    publish(directory / "model.safetensors", drafter.state_dict(), config, facts)


_STEPS = Lesson()
# A block that begins as nothing must grow as large as what it reads.
_GROWING = Rates(matrices=0.015, others=0.005)
_HEADS = Lesson(step_weights=(1.0, 0.8, 0.6, 0.5), sampled=2048)

KINDS: Mapping[str, Kind] = {
    "eagle3": Kind(_begin_eagle3, _write_eagle3, _STEPS),
    "mtp": Kind(_begin_mtp, _write_mtp, Lesson(sampled=2048)),
    "medusa": Kind(_begin_medusa, _write_medusa, _HEADS, _GROWING),
    "draft": Kind(_begin_draft, _write_draft, Lesson(step_weights=(1.0,), sampled=2048)),
}
