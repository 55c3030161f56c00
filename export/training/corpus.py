"""Conversations on disk: shards that several processes append to and a kill leaves whole.

A shard is an `.npz` of `ids` int32 and `mask` uint8 (both all conversations one after another),
`lengths` int64, `kinds` text and `held` uint8. It is written beside its name and renamed, so that
it is there whole or not at all. Its name has the writer's seed and a running number:
`shard-00001-000007.npz`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from export.training.damage import explained

_NAME = re.compile(r"shard-(\d+)-(\d+)\.npz")


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """Ids [T] int32 of a whole conversation, and a mask [T] uint8 of what the target wrote in
    answers, the token that ends one included.

    `held` ones are for measuring only.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.uint8]
    kind: str
    held: bool

    def __post_init__(self) -> None:
        assert self.ids.shape == self.mask.shape, "a mark for every token"

    @property
    def answer_tokens(self) -> int:
        return int(self.mask.sum())


@dataclass(frozen=True, slots=True)
class Count:
    """What there is of something."""

    conversations: int = 0
    tokens: int = 0
    answer_tokens: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.conversations + other.conversations,
            self.tokens + other.tokens,
            self.answer_tokens + other.answer_tokens,
        )


def count(conversation: Conversation) -> Count:
    return Count(1, len(conversation.ids), conversation.answer_tokens)


class Corpus:
    """The conversations of a directory, shard by shard in the order of their names."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @property
    def shards(self) -> list[Path]:
        if not self.path.is_dir():
            return []
        return sorted(path for path in self.path.iterdir() if _NAME.fullmatch(path.name))

    def __iter__(self) -> Iterator[Conversation]:
        for shard in self.shards:
            yield from read_shard(shard)

    def counts(self) -> dict[str, Count]:
        """By kind."""
        found: dict[str, Count] = {}
        for conversation in self:
            known = found.get(conversation.kind, Count())
            found[conversation.kind] = known + count(conversation)
        return found

    @property
    def tokens(self) -> int:
        return sum(found.tokens for found in self.counts().values())

    @property
    def answer_tokens(self) -> int:
        return sum(found.answer_tokens for found in self.counts().values())


def read_shard(path: Path) -> list[Conversation]:
    """Raises `UserError` (`work_damaged`) where it is not whole."""
    remedy = "remove it, and what features has of it; the rest stays"
    with explained(path, remedy), np.load(path, allow_pickle=False) as stored:
        ends = np.cumsum(stored["lengths"])[:-1]
        parts = zip(
            np.split(stored["ids"], ends),
            np.split(stored["mask"], ends),
            stored["kinds"].tolist(),
            stored["held"].tolist(),
            strict=True,
        )
        return [Conversation(ids, mask, kind, bool(held)) for ids, mask, kind, held in parts]


class ShardWriter:
    """Appends shards with this seed in their names, behind those that are there."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        directory.mkdir(parents=True, exist_ok=True)
        self.first = self._next = self._first_free()

    def append(self, conversations: Sequence[Conversation]) -> Path:
        """A shard of `conversations`, which are at least one."""
        path = self._directory / f"shard-{self._seed:05d}-{self._next:06d}.npz"
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        with scratch.open("wb") as stream:
            np.savez(
                stream,
                ids=np.concatenate([conversation.ids for conversation in conversations]),
                mask=np.concatenate([conversation.mask for conversation in conversations]),
                lengths=np.array([len(c.ids) for c in conversations], dtype=np.int64),
                kinds=np.array([conversation.kind for conversation in conversations]),
                held=np.array([conversation.held for conversation in conversations], np.uint8),
            )
            stream.flush()
            os.fsync(stream.fileno())
        scratch.rename(path)
        self._next += 1
        return path

    def _first_free(self) -> int:
        names = (_NAME.fullmatch(path.name) for path in self._directory.iterdir())
        taken = [int(name[2]) for name in names if name and int(name[1]) == self._seed]
        return max(taken, default=-1) + 1


def describe(counts: Mapping[str, Count]) -> str:
    """Answer tokens by kind, for a progress line."""
    return ", ".join(f"{kind} {found.answer_tokens:,}" for kind, found in sorted(counts.items()))
