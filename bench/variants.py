"""The settings that must not change an answer, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.drafter_settings import NGRAM
from gateway.engine.requests import GenerationRequest, Policy, Speculation
from models.sampling.parameters import Sampling

MOST_CHUNKS = 64
"""A prompt is cut into at most this many chunks: wider ones where it is long, to save hours."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of generating an answer.

    `length` is the draft length of policy `fixed`; with `branches` > 1 the draft is a tree of so
    many tokens. `chunk` is the prefill width (None: the whole prompt at once). `reuse` lets the
    request start from K/V that another request left.
    """

    name: str
    policy: Policy
    length: int | None = None
    chunk: int | None = None
    reuse: bool = False
    branches: int = 1
    drafter: str = NGRAM

    def by(self, drafter: str) -> Variant:
        """The same with another drafter."""
        if drafter == self.drafter:
            return self
        return replace(self, name=f"{drafter}: {self.name}", drafter=drafter)

    def request(
        self, prompt: tuple[int, ...], max_tokens: int, sampling: Sampling
    ) -> GenerationRequest:
        drafter = "off" if self.policy == "off" else self.drafter
        chunk = len(prompt) if self.chunk is None else self.chunk
        return GenerationRequest(
            prompt=prompt,
            max_tokens=max_tokens,
            sampling=sampling,
            speculation=Speculation(drafter, self.policy, self.length, self.branches),
            prefill_chunk=max(2, chunk, -(-len(prompt) // MOST_CHUNKS)),
            reuse_prefix=self.reuse,
        )


REFERENCE = Variant("off, whole, cold", "off")
WARM = Variant("auto, warm", "cost", reuse=True)
CONTINUED = Variant("auto, next turn on its own K/V", "cost", reuse=True)
BUSY = Variant("length 8, whole, cold, beside a copy", "fixed", 8)
COPIED = Variant("auto, prefix copied from a running slot", "cost", reuse=True)

MIXED = (
    Variant("length 1, warm", "fixed", 1, reuse=True),
    Variant("length 2, chunks of 2", "fixed", 2, chunk=2),
    Variant("length 3, chunks of 7", "fixed", 3, chunk=7),
    Variant("length 4, chunks of 64", "fixed", 4, chunk=64),
    Variant("length 5, warm", "fixed", 5, reuse=True),
    Variant("length 6, chunks of 7", "fixed", 6, chunk=7),
    Variant("length 7, chunks of 64", "fixed", 7, chunk=64),
    Variant("length 8, whole", "fixed", 8),
    Variant("auto, warm, chunks of 7", "cost", chunk=7, reuse=True),
    Variant("auto, chunks of 2", "cost", chunk=2),
)
"""Run four at a time, of different prompts. Any four neighbours have one that reuses a prefix; it
is opened first, before the others take the slot that holds it."""

TREES = (
    Variant("tree of 4, 3 branches", "fixed", 4, branches=3),
    Variant("tree of 8, 3 branches", "fixed", 8, branches=3),
)
"""Lossless up to near ties: what a tree masks changes the order of sums."""

BESIDE_TREES = (
    Variant("length 4, beside trees", "fixed", 4),
    Variant("length 8, beside trees", "fixed", 8),
)
"""Chains that share runs with trees: as exact as any."""

CONCURRENCY = 4


def packs(prompts: int, variants: Sequence[Variant] = MIXED) -> list[list[tuple[int, Variant]]]:
    """Every prompt with every variant once, in packs of (prompt index, variant) to run at once.

    Neighbours differ in prompt (where there is more than one) and in variant.
    """
    order = [
        (prompt, variants[(turn + prompt) % len(variants)])
        for turn in range(len(variants))
        for prompt in range(prompts)
    ]
    groups = [order[start : start + CONCURRENCY] for start in range(0, len(order), CONCURRENCY)]
    return [sorted(group, key=lambda item: not item[1].reuse) for group in groups]
