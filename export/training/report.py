"""How good a head is on held-out text, by kind of conversation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from export.training.batches import Item, Store
from export.training.drafting import Task


@dataclass(slots=True)
class Tally:
    """Over the places of answers, and over the rounds that would have been made.

    `right[k]` counts places whose draft k was the target's first choice, given the text up to
    there, `survived[k]` those where all drafts up to it were. A round drafts from where the one
    before ended; `tokens` is what rounds gave, the target's own token included.
    """

    places: int = 0
    right: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    survived: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    rounds: int = 0
    tokens: int = 0

    def add(self, anchors: NDArray[np.int64], right: NDArray[np.bool_]) -> None:
        """Of one conversation: anchors [A] rising, right [A, steps]."""
        alive = np.logical_and.accumulate(right, axis=1)
        self.right = _sum(self.right, right.sum(axis=0))
        self.survived = _sum(self.survived, alive.sum(axis=0))
        self.places += len(anchors)
        lengths = alive.sum(axis=1)
        place = 0
        while place < len(anchors):
            end = anchors[place] + lengths[place] + 1
            self.rounds += 1
            self.tokens += int(lengths[place]) + 1
            place = int(np.searchsorted(anchors, end))

    def summary(self) -> dict[str, object]:
        """`agreement` and `survival` per step; `tau`: tokens a round."""
        places = max(self.places, 1)
        return {
            "places": self.places,
            "agreement": [round(float(x), 4) for x in self.right / places],
            "survival": [round(float(x), 4) for x in self.survived / places],
            "tau": round(self.tokens / max(self.rounds, 1), 4),
        }


def evaluate(
    task: Task, store: Store, items: Iterable[Item], steps: int, device: torch.device
) -> dict[str, Tally]:
    """By kind; the key "all" holds the sum."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    for item in items:
        if item.answers < 2:
            continue
        batch = store.batch([item], task.columns).to(device)
        with torch.no_grad():
            anchors, right = task.draft(batch, steps)
        if not len(anchors):
            continue
        for kind in (item.kind, "all"):
            tallies[kind].add(anchors.cpu().numpy(), right.cpu().numpy())
    return dict(tallies)


def held_items(store: Store, most: int) -> Sequence[Item]:
    """Held conversations, at most so many, evenly taken."""
    held = [item for item in store.items if item.held]
    return held[:: max(len(held) // most, 1)][:most]


def table(tallies: Mapping[str, Tally]) -> str:
    lines = []
    for kind in sorted(tallies, key=lambda kind: (kind == "all", kind)):
        summary = tallies[kind].summary()
        agreement = " ".join(f"{x:.3f}" for x in tallies[kind].right / tallies[kind].places)
        survival = " ".join(f"{x:.3f}" for x in tallies[kind].survived / tallies[kind].places)
        lines.append(
            f"{kind:12} {tallies[kind].places:7} places  agreement {agreement}"
            f"  survival {survival}  tau {summary['tau']:.3f}"
        )
    return "\n".join(lines)


def _sum(sums: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return counts if not len(sums) else sums + counts
