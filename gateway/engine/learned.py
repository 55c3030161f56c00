"""The drafters that a package has learned, as the engine sees them."""

from __future__ import annotations

from typing import Protocol

from models.capture import GraphCounts
from models.draft import Drafter
from models.drafters.learned import LearnedModels
from models.initializers import SharedWeights
from models.package import DrafterSpec, Package
from models.providers import Provider
from models.runs import Runs
from models.sampling.sampler import Sampler
from models.slots import Slot


class Learned(Protocol):
    """What is needed of `models.drafters.learned.LearnedModels`."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    @property
    def graph_counts(self) -> list[GraphCounts]: ...

    def spec(self, kind: str) -> DrafterSpec: ...

    def drafts_trees(self, kind: str) -> bool: ...

    def load(self, kind: str) -> None: ...

    def drafter(
        self, kind: str, slot: Slot, sampler: Sampler | None, *, shared: bool, branches: int = 1
    ) -> Drafter: ...


def learned_drafters(
    package: Package,
    provider: Provider,
    threads: int | None,
    weights: SharedWeights | None = None,
    runs: Runs | None = None,
    *,
    check_memory: bool = True,
) -> Learned | None:
    """Those of `package`, without their graphs; None where it has none. `weights` are those of a
    device, shared with the target; `runs` are interrupted with its own."""
    if not package.manifest.drafters:
        return None
    return LearnedModels(package, provider, threads, weights, runs, check_memory=check_memory)
