"""Slots: K/V buffers that graphs write in place, with the tokens they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.buffers import KV_TYPES, TokenRows, allocate
from models.drafters.state import DrafterState
from models.memory import PAD_TOKENS
from models.package import TargetSpec
from models.providers import Provider

COPY_WORTHWHILE = 16
"""Tokens of shared prefix from which copying K/V beats computing it again, and from which, where
nothing can be copied, the end of a conversation is given up for its beginning."""

_NO_FEATURES: Mapping[str, Any] = MappingProxyType({})


class Slot:
    """One request's K/V buffers: per layer a key and a value [1, kv_heads, capacity, head_dim].

    `length` tokens are committed: their K/V is in the buffers and their ids in `tokens`. A run
    writes behind them; what is not committed afterwards is overwritten by the next run, so that
    rolling back costs nothing. The first `exact_length` have the K/V that any chain gives them; a
    tree's differs in the last bits, and so does that of whatever follows.

    `features` are what drafters read of the target: by name, [capacity, F], a row a token, written
    by the same runs and valid for the same tokens as the K/V. `drafters` are the K/V of drafters by
    kind. All of it is kept with the tokens: a warm prefix is warm for the drafters too. `owner` is
    whose they are.
    """

    def __init__(
        self,
        index: int,
        context: int,
        buffers: Sequence[tuple[Any, Any]],
        features: Mapping[str, Any] = _NO_FEATURES,
    ) -> None:
        self.index = index
        self.context = context
        self.buffers = tuple(buffers)
        self.features = dict(features)
        self.feature_rows = {name: TokenRows(value) for name, value in features.items()}
        self.drafters: dict[str, DrafterState] = {}
        self.owner: str | None = None
        self.length = 0
        self.exact_length = 0
        self._ids = np.zeros(context, dtype=np.int64)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Ids of the committed tokens (a view)."""
        return self._ids[: self.length]

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.context - self.length

    def commit(self, tokens: Sequence[int], *, exact: bool = True) -> None:
        """Count `tokens`, whose K/V the last run wrote behind the committed ones, as committed.

        `exact` is false where that run took them as a tree.
        """
        end = self.length + len(tokens)
        assert end <= self.context, "committed past the end of the slot"
        self._ids[self.length : end] = tokens
        if exact and self.exact_length == self.length:
            self.exact_length = end
        self.length = end

    def truncate(self, length: int) -> None:
        """Forget all tokens from `length` on."""
        assert 0 <= length <= self.length, "a slot can only be shortened"
        self.length = length
        self.exact_length = min(self.exact_length, length)
        for state in self.drafters.values():
            state.truncate(length)

    def common_prefix(self, tokens: NDArray[np.int64]) -> int:
        """How many leading tokens the slot shares with `tokens`, as far as their K/V is exact."""
        shorter = min(self.exact_length, len(tokens))
        different = np.flatnonzero(self._ids[:shorter] != tokens[:shorter])
        return int(different[0]) if len(different) else shorter


def make_slot(index: int, target: TargetSpec, context: int, provider: Provider) -> Slot:
    """A slot for `context` tokens with its buffers on the provider's device."""
    capacity, kind = context + PAD_TOKENS, KV_TYPES[target.kv_type]
    shape = (1, target.kv_heads, capacity, target.head_dim)
    pairs = [
        (allocate(shape, kind, provider), allocate(shape, kind, provider))
        for _ in range(target.layers)
    ]
    features = {
        name: allocate((capacity, width), kind, provider) for name, width in target.features.items()
    }
    return Slot(index, context, pairs, features)


def copy_prefix(source: Slot, target: Slot, length: int) -> None:
    """Copy K/V and features of the first `length` tokens of `source`. Host memory only.

    `source` may belong to a running request: what is committed is not written any more.
    """
    for pair, own_pair in zip(source.buffers, target.buffers, strict=True):
        for buffer, own in zip(pair, own_pair, strict=True):
            own.numpy()[:, :, :length] = buffer.numpy()[:, :, :length]
    for name, rows in target.features.items():
        rows.numpy()[:length] = source.features[name].numpy()[:length]
    # Leases on another thread may add to them meanwhile.
    for kind, state in list(target.drafters.items()):
        if kind in source.drafters:
            state.copy_from(source.drafters[kind], length)


def adopt_drafters(source: Slot, target: Slot, length: int) -> None:
    """Count as `target`'s what `copy_prefix` will copy of the drafters' K/V.

    Apart from the copy, which is queued: what `source` holds now is there when its turn comes.
    """
    for kind, state in source.drafters.items():
        if kind not in target.drafters:
            target.drafters[kind] = state.like()
        target.drafters[kind].adopt(state, length)


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot for a request, holding `shared` tokens of its prompt.

    Where `source` is given their K/V is still to be copied from there by `fill`, before any later
    run: runs and copies must be queued in the order of the leases.
    """

    slot: Slot
    shared: int
    source: Slot | None = None

    def fill(self) -> None:
        if self.source is not None:
            copy_prefix(self.source, self.slot, self.shared)


class SlotPool:
    """Chooses slots for prompts so that warm prefixes are used and kept.

    A free slot that holds mostly this prompt (the same conversation) is continued. Otherwise the
    slot unused longest is taken, and a prefix found elsewhere (a system prompt, a busy request)
    is copied into it, which leaves the other conversation warm. Where nothing can be copied, a
    prefix worth it is continued where it is, and what followed it there is lost.

    An owner finds what it wrote itself, unless prefixes are `shared`: what others wrote is to it
    as if it were not there. Whose slot is taken for a new conversation does not depend on that.
    """

    def __init__(self, slots: Sequence[Slot], *, can_copy: bool, shared: bool = False) -> None:
        self._slots = tuple(slots)
        self._free: list[Slot] = list(slots)
        self._can_copy = can_copy
        self._shared = shared

    @property
    def total(self) -> int:
        return len(self._slots)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used_tokens(self) -> int:
        return sum(slot.length for slot in self._slots)

    def acquire(
        self, prompt: Sequence[int], reuse_prefix: bool = True, owner: str | None = None
    ) -> Lease | None:
        """A lease on a free slot truncated to what it shares with `prompt`; None if all are taken.

        The last token of the prompt never counts as shared: its logits are needed.
        """
        if not self._free:
            return None
        owner = None if self._shared else owner
        tokens = np.asarray(prompt[:-1], dtype=np.int64)
        shared = {
            id(slot): slot.common_prefix(tokens) if reuse_prefix and slot.owner == owner else 0
            for slot in self._slots
        }
        lease = self._chosen(shared)
        lease.slot.owner = owner
        return lease

    def release(self, slot: Slot) -> None:
        """Give `slot` back with the tokens it has; it becomes the one used last."""
        assert slot not in self._free, "slot released twice"
        self._free.append(slot)

    def _chosen(self, shared: Mapping[int, int]) -> Lease:
        """`shared` has the tokens that may be used of each slot."""
        warm = max(self._free, key=lambda slot: shared[id(slot)])
        if 2 * shared[id(warm)] >= warm.length > 0:
            return self._take(warm, shared[id(warm)], None)
        oldest = self._free[0]
        source = max(self._slots, key=lambda slot: shared[id(slot)]) if self._can_copy else warm
        if shared[id(source)] < shared[id(oldest)] + COPY_WORTHWHILE:
            return self._take(oldest, shared[id(oldest)], None)
        if self._can_copy:
            return self._take(oldest, shared[id(source)], source)
        return self._take(warm, shared[id(warm)], None)

    def _take(self, slot: Slot, shared: int, source: Slot | None) -> Lease:
        self._free.remove(slot)
        if source is None:
            slot.truncate(shared)
        else:
            slot.truncate(0)
            slot.commit(source.tokens[:shared].tolist())
            adopt_drafters(source, slot, shared)
        return Lease(slot=slot, shared=shared, source=source)
