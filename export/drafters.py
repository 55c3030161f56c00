"""Drafters of a package: what was asked for, read and judged, then made beside the target.

A plan is one drafter whose source was found fit for the target. Reading comes first, while the
checkpoint is in memory and before anything is built: what is wrong with a source is said then, and
what the drafters read of the target decides which features its graphs give out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from export.checkpoint import Checkpoint
from export.drafter_site import Site
from export.features import Features, needed
from export.progress import Progress
from export.wanted import Wanted
from models.errors import UserError
from models.package import DrafterSpec, TargetSpec, vocabulary_file

LEAST_CONTEXT = 64
"""Room for the texts that drafters are checked on."""


class Plan(Protocol):
    """A drafter read, not yet made. `describe` says what it is, for messages."""

    @property
    def kind(self) -> str: ...
    @property
    def reads(self) -> str | None: ...
    @property
    def tap_layers(self) -> tuple[int, ...]: ...
    @property
    def describe(self) -> str: ...

    def write(self, site: Site, progress: Progress) -> DrafterSpec:
        """Write the drafter's files beside the target's and check them."""


def read_plans(
    wanted: Sequence[Wanted], checkpoint: Checkpoint, context: int, progress: Progress
) -> list[Plan]:
    """One plan a kind; `checkpoint` must still have its model. Each source is refused by name."""
    from export.drafter_plans import Reader

    if wanted and context < LEAST_CONTEXT:
        raise UserError(
            f"{wanted[0].option} for a context of {context} tokens: drafters need"
            f" {LEAST_CONTEXT} at least.",
            code="invalid_option",
            param=wanted[0].option,
        )
    reader = Reader(checkpoint, context)
    plans: dict[str, Plan] = {}
    for one in wanted:
        with progress.step(f"reading {one.option} {one.text}".rstrip()):
            plan = reader.read(one)
        if plan.kind in plans:
            progress.line(
                f"  {plan.describe} replaces {plans[plan.kind].describe}:"
                f" a package has one {plan.kind} drafter"
            )
        plans[plan.kind] = plan
    return list(plans.values())


def features_of(
    plans: Sequence[Plan], kept: Sequence[DrafterSpec] = (), target: TargetSpec | None = None
) -> Features:
    """What the target must give out for `plans`, and for drafters it has already."""
    features = Features()
    if target is not None:
        features = needed([spec.reads for spec in kept], target.tap_layers)
    for plan in plans:
        own = needed([plan.reads], plan.tap_layers)
        if features.tap_layers and own.tap_layers not in ((), features.tap_layers):
            raise UserError(
                f"{plan.describe} reads the target's layers {own.tap_layers}, another drafter of"
                f" the package {features.tap_layers}: a package has one set of taps.",
                code="drafters_conflict",
                param="--eagle",
            )
        features |= own
    return features


def write_drafters(
    plans: Sequence[Plan], site: Site, progress: Progress
) -> tuple[DrafterSpec, ...]:
    return tuple(plan.write(site, progress) for plan in plans)


def drafter_files(spec: DrafterSpec) -> set[str]:
    """All that a drafter may have: its vocabulary's file only where it has one of its own."""
    names = {*spec.graphs.values(), *spec.tree_graphs.values(), *spec.weights}
    return names | {vocabulary_file(spec.kind)}


def remove_unused(directory: Path, specs: Sequence[DrafterSpec], shared: str) -> None:
    """The file of shared embeddings goes where no drafter reads it any more."""
    if not any(shared in spec.weights for spec in specs):
        (directory / shared).unlink(missing_ok=True)
