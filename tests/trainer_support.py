"""A small head and packed texts for tests of the trainer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from export.heads.attention import Rotary
from export.heads.block import BlockShape
from export.heads.eagle3 import Eagle3, Eagle3Shape
from export.training.batches import Batch
from export.training.corpus import Conversation, ShardWriter
from export.training.drafting import ChainTask, Vocabulary

HIDDEN, VOCABULARY, TOP = 16, 40, 6
BLOCK = BlockShape(HIDDEN, 4, 2, 4, 24)


def small_rotary(head_dim: int, positions: int = 64) -> Rotary:
    angles = torch.outer(torch.arange(positions), 0.5 ** torch.arange(head_dim // 2)).float()
    return Rotary(angles.cos(), angles.sin())


def small_eagle3(seed: int = 0, draft_ids: list[int] | None = None) -> Eagle3:
    torch.manual_seed(seed)
    shape = Eagle3Shape(BLOCK, VOCABULARY, 3 * HIDDEN, own_head=False)
    ids = None if draft_ids is None else torch.tensor(draft_ids)
    embeddings, lm_head = torch.randn(VOCABULARY, HIDDEN), torch.randn(VOCABULARY, HIDDEN)
    return Eagle3(shape, small_rotary(4), ids, embeddings, lm_head)


def packed(lengths: tuple[int, ...], width: int, seed: int = 0) -> Batch:
    """Texts whose distributions are known behind every token but the last, all of them answers."""
    draw, total = np.random.default_rng(seed), sum(lengths)
    ends = np.cumsum(lengths)
    known = np.ones(total, bool)
    known[ends - 1] = False
    row_of = np.where(known, np.cumsum(known) - 1, -1)
    rows = int(known.sum())
    logs = np.sort(np.log(draw.dirichlet(np.ones(TOP), rows)), axis=1)[:, ::-1]
    ids = np.stack([draw.permutation(VOCABULARY)[:TOP] for _ in range(rows)])
    return Batch(
        ids=torch.from_numpy(draw.integers(0, VOCABULARY, total)),
        positions=torch.cat([torch.arange(length) for length in lengths]),
        features=torch.from_numpy(draw.standard_normal((total, width)).astype(np.float32)),
        segment=torch.repeat_interleave(torch.tensor(lengths)),
        ends=torch.from_numpy(ends),
        row_of=torch.from_numpy(row_of),
        top_ids=torch.from_numpy(ids),
        top_logs=torch.from_numpy(logs.astype(np.float32)),
        answers=torch.ones(rows, dtype=torch.bool),
    )


def write_store(root: Path, lengths: tuple[int, ...], seed: int = 0) -> tuple[Path, Path]:
    """A corpus of one shard and its features, taken from nowhere; the last text is held out.

    The first third of each text is its prompt. Returns the directories of both.
    """
    draw, conversations = np.random.default_rng(seed), []
    for index, length in enumerate(lengths):
        mask = np.zeros(length, np.uint8)
        mask[length // 3 :] = 1
        ids = draw.integers(0, VOCABULARY, length).astype(np.int32)
        held = index == len(lengths) - 1
        conversations.append(Conversation(ids, mask, "ab"[index % 2], held))
    shard = ShardWriter(root / "corpus", seed=seed).append(conversations)
    batch = packed(lengths, 4 * HIDDEN, seed)
    place = root / "features" / shard.stem
    place.mkdir(parents=True)
    np.save(place / "features.npy", batch.features.numpy().astype(np.float16))
    np.save(place / "places.npy", (batch.row_of >= 0).nonzero()[:, 0].numpy().astype(np.int32))
    np.save(place / "top_ids.npy", batch.top_ids.numpy().astype(np.int32))
    np.save(place / "top_logs.npy", batch.top_logs.numpy().astype(np.float16))
    return root / "corpus", root / "features"


def small_task(seed: int = 0) -> ChainTask:
    vocabulary = Vocabulary(VOCABULARY, torch.arange(4))
    return ChainTask(small_eagle3(seed), slice(0, 3 * HIDDEN), torch.ones(3 * HIDDEN), vocabulary)
