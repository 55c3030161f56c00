"""What a drafter keeps of a slot's tokens: K/V of its own."""

from __future__ import annotations

from models.buffers import KV_TYPES, allocate
from models.memory import PAD_TOKENS, drafter_context
from models.package import DrafterSpec
from models.providers import Provider


class DrafterState:
    """One drafter's K/V in one slot: per layer a key and a value [1, kv_heads, capacity, head_dim].

    The first `length` entries belong to committed tokens. Entry p of a drafter with lookahead 0 is
    made of token p; with lookahead 1, of the feature at p and token p + 1. Of `n` tokens it may so
    know the first n - lookahead entries. `length` changes with the slot's tokens, on the thread
    that commits them; runs write behind it.
    """

    def __init__(self, spec: DrafterSpec, kv_type: str, context: int, provider: Provider) -> None:
        self._made_of = (spec, kv_type, context, provider)
        self.lookahead = spec.lookahead
        self.capacity = drafter_context(spec, context) + PAD_TOKENS
        self.length = 0
        shape = (1, spec.kv_heads, self.capacity, spec.head_dim)
        kind = KV_TYPES[kv_type]
        self.buffers = tuple(
            (allocate(shape, kind, provider), allocate(shape, kind, provider))
            for _ in range(spec.layers)
        )

    def like(self) -> DrafterState:
        """An empty one for another slot."""
        return DrafterState(*self._made_of)

    def truncate(self, tokens: int) -> None:
        """Forget what belongs to tokens from `tokens` on."""
        self.length = min(self.length, max(0, tokens - self.lookahead))

    def adopt(self, source: DrafterState, tokens: int) -> None:
        """Have as many entries for the first `tokens` tokens as `source` has."""
        self.length = min(source.length, max(0, tokens - self.lookahead))

    def copy_from(self, source: DrafterState, tokens: int) -> None:
        """Copy the entries for the first `tokens` tokens, made or not. Host memory only."""
        entries = max(0, tokens - self.lookahead)
        for pair, own_pair in zip(source.buffers, self.buffers, strict=True):
            for buffer, own in zip(pair, own_pair, strict=True):
                own.numpy()[:, :, :entries] = buffer.numpy()[:, :, :entries]
