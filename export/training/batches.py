"""Batches of conversations with what the target made of them, in an order that can be resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from export.training.corpus import Conversation, read_shard
from export.training.damage import damaged, explained

MOST_CONTEXT = 6144
"""Tokens of a batch, unless one conversation has more."""

_REMEDY = "remove this directory, and it is made again"


@dataclass(frozen=True, slots=True)
class Item:
    """A conversation: tokens `begin` to `end` of its shard; known places, tokens of answers."""

    shard: int
    begin: int
    end: int
    known: int
    answers: int
    kind: str
    held: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Several texts one after another.

    ids and positions [N], features [N, F]. `segment` [N] is each token's text, `ends` [texts] where
    it ends. Behind the token `n` the target's distribution is row `row_of[n]` (-1: not known) of
    `top_ids` and `top_logs` [M, K]; `answers` [M] says whether the next token is an answer's.
    """

    ids: Tensor
    positions: Tensor
    features: Tensor
    segment: Tensor
    ends: Tensor
    row_of: Tensor
    top_ids: Tensor
    top_logs: Tensor
    answers: Tensor

    @property
    def segments(self) -> list[tuple[int, int]]:
        ends = self.ends.tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def to(self, device: torch.device) -> Batch:
        moved = {
            field.name: getattr(self, field.name).to(device) for field in dataclasses.fields(self)
        }
        return Batch(**moved)

    def behind(self, anchors: Tensor, distance: int) -> tuple[Tensor, Tensor]:
        """The places `distance` behind `anchors`, and whether they are still of the same text."""
        places = anchors + distance
        ends = self.ends[self.segment[anchors]]
        return places.minimum(ends - 1), places < ends


class Store:
    """The conversations of a corpus whose features are there; float16 on disk, mapped."""

    def __init__(self, corpus: Path, features: Path) -> None:
        self._corpus, self._features = corpus, features
        self._places: list[dict[str, NDArray[Any]]] = []
        self._names: set[str] = set()
        self.items: tuple[Item, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        """Add what has come since."""
        items = list(self.items)
        for place in sorted(self._features.iterdir()):
            if place.suffix != ".tmp" and place.name not in self._names:
                self._names.add(place.name)
                self._open(self._corpus / f"{place.name}.npz", place, items)
        self.items = tuple(items)

    def _open(self, shard: Path, place: Path, items: list[Item]) -> None:
        conversations = _shard_of(shard, place)
        with explained(place, _REMEDY):
            arrays = {
                name: np.load(place / f"{name}.npy", mmap_mode="r" if name == "features" else None)
                for name in ("features", "places", "top_ids", "top_logs")
            }
        arrays["ids"] = np.concatenate([conversation.ids for conversation in conversations])
        arrays["mask"] = np.concatenate([conversation.mask for conversation in conversations])
        _check_lengths(arrays, place)
        index, begin = len(self._places), 0
        self._places.append(arrays)
        for conversation in conversations:
            end = begin + len(conversation.ids)
            low, high = np.searchsorted(arrays["places"], [begin, end])
            items.append(
                Item(
                    index,
                    begin,
                    end,
                    int(high - low),
                    conversation.answer_tokens,
                    conversation.kind,
                    conversation.held,
                )
            )
            begin = end

    def batch(self, items: Sequence[Item], columns: slice) -> Batch:
        """`columns` of the features."""
        parts = [self._read(item, columns) for item in items]
        rows = np.cumsum([0, *(len(part["top_ids"]) for part in parts)])
        for part, first in zip(parts, rows[:-1], strict=True):
            part["row_of"][part["row_of"] >= 0] += first
        lengths = [len(part["ids"]) for part in parts]
        joined = {
            name: torch.from_numpy(np.concatenate([part[name] for part in parts]))
            for name in parts[0]
        }
        return Batch(
            segment=torch.repeat_interleave(torch.tensor(lengths)),
            ends=torch.tensor(lengths).cumsum(0),
            **joined,
        )

    def _read(self, item: Item, columns: slice) -> dict[str, NDArray[Any]]:
        arrays = self._places[item.shard]
        low, high = np.searchsorted(arrays["places"], [item.begin, item.end])
        places = arrays["places"][low:high].astype(np.int64) - item.begin
        row_of = np.full(item.end - item.begin, -1, np.int64)
        row_of[places] = np.arange(high - low)
        mask = arrays["mask"][item.begin : item.end]
        return {
            "ids": arrays["ids"][item.begin : item.end].astype(np.int64),
            "positions": np.arange(item.end - item.begin),
            "features": arrays["features"][item.begin : item.end, columns].astype(np.float32),
            "row_of": row_of,
            "top_ids": arrays["top_ids"][low:high].astype(np.int64),
            "top_logs": arrays["top_logs"][low:high].astype(np.float32),
            # The last place of a text is never known: something follows each of them.
            "answers": mask[places + 1] != 0,
        }

    def frequencies(
        self, vocab_size: int, *, held: bool = False, prompts: float = 0.1
    ) -> NDArray[np.float64]:
        """How often each id is written in answers, and in prompts times `prompts`."""
        counts = np.zeros(vocab_size)
        for item in self.items:
            if item.held == held:
                arrays = self._places[item.shard]
                ids, mask = (arrays[name][item.begin : item.end] for name in ("ids", "mask"))
                weights = np.where(mask != 0, 1.0, prompts)
                counts += np.bincount(ids, weights, minlength=vocab_size)
        return counts


def _shard_of(shard: Path, place: Path) -> list[Conversation]:
    if not shard.is_file():
        raise damaged(place, f"there is no {shard}, which it was made of", _REMEDY)
    return read_shard(shard)


def _check_lengths(arrays: dict[str, NDArray[Any]], place: Path) -> None:
    tokens, rows = len(arrays["ids"]), len(arrays["places"])
    if len(arrays["features"]) != tokens:
        problem = f"features of {len(arrays['features'])} tokens, and a text of {tokens}"
        raise damaged(place, problem, _REMEDY)
    if not len(arrays["top_ids"]) == len(arrays["top_logs"]) == rows:
        raise damaged(place, f"not all of its files have {rows} rows", _REMEDY)


def groups(items: Sequence[Item], places: int, draw: np.random.Generator) -> Iterator[list[Item]]:
    """All `items` once, in a drawn order, so many together that about `places` are known."""
    group: list[Item] = []
    for index in draw.permutation(len(items)):
        item = items[index]
        tokens = sum(other.end - other.begin for other in group) + item.end - item.begin
        if group and (tokens > MOST_CONTEXT or sum(o.known for o in group) >= places):
            yield group
            group = []
        group.append(item)
    if group:
        yield group
