"""A small head and packed texts for tests of the trainer."""

from __future__ import annotations

import numpy as np
import torch

from export.heads.attention import Rotary
from export.heads.block import BlockShape
from export.heads.eagle3 import Eagle3, Eagle3Shape
from export.training.batches import Batch

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
