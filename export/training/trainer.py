"""The training loop: updates from groups of conversations, checkpoints, schedule on time."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from export.training.batches import Item, Store, groups
from export.training.damage import explained
from export.training.drafting import Lesson, Task
from export.training.optimizer import Average, Optimizer, Rates
from models.errors import UserError

_RECENT = 20
_LONGEST_UPDATE = 120.0
_REMEDY = "go on with the options it was begun with, or remove it to begin anew"


@dataclass(frozen=True, slots=True)
class Plan:
    """An update has about `per_update` places, in runs of about `per_run`.

    Learning rates rise for `warm_up` updates, stay, and fall from the share `fall` of `minutes` to
    `last` of their size; after that they stay there.
    """

    minutes: float
    lesson: Lesson = field(default_factory=Lesson)
    rates: Rates = field(default_factory=Rates)
    muon: bool = True
    per_update: int = 1024
    per_run: int = 512
    warm_up: int = 20
    fall: float = 0.4
    last: float = 0.08
    most_norm: float = 5.0
    average: float = 0.985
    save_minutes: float = 3.0
    seed: int = 0

    def scale(self, updates: int, seconds: float) -> float:
        passed = seconds / (60 * self.minutes)
        down = min(max((passed - self.fall) / (1 - self.fall), 0.0), 1.0)
        return min((updates + 1) / self.warm_up, 1.0) * (1 - (1 - self.last) * down)


@dataclass(slots=True)
class Progress:
    """Where training is: groups of this epoch that are done, and all there was so far."""

    epoch: int = 0
    group: int = 0
    items: int = 0
    updates: int = 0
    places: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Recent:
    """Figures of the last updates, for progress lines."""

    entries: deque[tuple[float, list[int], list[int]]] = field(
        default_factory=lambda: deque(maxlen=_RECENT)
    )

    def describe(self) -> str:
        loss = np.mean([entry[0] for entry in self.entries])
        steps = range(min(len(entry[1]) for entry in self.entries))
        shares = [
            sum(entry[2][s] for entry in self.entries)
            / max(sum(entry[1][s] for entry in self.entries), 1)
            for s in steps
        ]
        return f"loss {loss:.3f}, right {' '.join(f'{share:.3f}' for share in shares)}"


class Trainer:
    """Trains `task` on what is not held; resumes from `checkpoint` where that is there."""

    def __init__(self, task: Task, store: Store, plan: Plan, checkpoint: Path) -> None:
        self._task, self._store, self._checkpoint = task, store, checkpoint
        self.plan = plan
        self._optimizer = Optimizer(task.module, plan.rates, muon=plan.muon)
        self._average = Average(task.module, plan.average)
        self._device = next(task.module.parameters()).device
        self.progress = Progress()
        self._generator = torch.Generator().manual_seed(plan.seed)
        self.recent = Recent()
        if checkpoint.is_file():
            with explained(checkpoint, _REMEDY):
                self._load()

    @property
    def module(self) -> nn.Module:
        return self._task.module

    def run(self, stop: Callable[[], bool], report: Callable[[str], None]) -> None:
        """Until `minutes` of training have passed in all, or `stop`; a checkpoint at the end."""
        saved = reported = time.monotonic()
        for loss, tried, right in self._updates(stop):
            self.recent.entries.append((loss, tried, right))
            now = time.monotonic()
            if now - reported >= 20:
                reported = now
                report(self._line())
            if now - saved >= 60 * self.plan.save_minutes:
                saved = now
                self.save()
        self.save()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The module has its averaged parameters for a while."""
        self._average.swap(self._task.module)
        try:
            yield
        finally:
            self._average.swap(self._task.module)

    def save(self) -> None:
        stored = {
            "module": self._task.module.state_dict(),
            "average": self._average.values,
            "optimizer": self._optimizer.state_dict(),
            "progress": dataclasses.asdict(self.progress),
            "generator": self._generator.get_state(),
        }
        scratch = self._checkpoint.with_suffix(".tmp")
        try:
            torch.save(stored, scratch)
            scratch.replace(self._checkpoint)
        except RuntimeError as error:  # PyTorch's, for all that a disk refuses
            raise UserError(
                f"{self._checkpoint} could not be written ({str(error).splitlines()[0]}): is the"
                " disk full? What was saved before stays.",
                code="work_unwritable",
                param="--work",
            ) from error
        finally:
            scratch.unlink(missing_ok=True)

    def _load(self) -> None:
        stored: dict[str, Any] = torch.load(
            self._checkpoint, weights_only=True, map_location=self._device
        )
        self._task.module.load_state_dict(stored["module"])
        self._average.values = stored["average"]
        self._optimizer.load_state_dict(stored["optimizer"])
        self.progress = Progress(**stored["progress"])
        self._generator.set_state(stored["generator"].cpu())

    def _updates(self, stop: Callable[[], bool]) -> Iterator[tuple[float, list[int], list[int]]]:
        plan, progress = self.plan, self.progress
        before = time.monotonic()
        gathered, losses = 0, 0.0
        tried, right = np.zeros(0, int), np.zeros(0, int)
        for group in self._groups():
            batch = self._store.batch(group, self._task.columns).to(self._device)
            outcome = self._task.learn(batch, plan.lesson, self._generator)
            (outcome.loss / plan.per_update).backward()  # type: ignore[no-untyped-call]
            gathered += outcome.places
            losses += float(outcome.loss.detach())
            tried, right = _add(tried, outcome.tried), _add(right, outcome.right)
            if gathered < plan.per_update:
                continue
            now = time.monotonic()
            # A process that was stopped for a while has not trained.
            progress.seconds += min(now - before, _LONGEST_UPDATE)
            before = now
            self._optimizer.clip(plan.most_norm)
            self._optimizer.step(plan.scale(progress.updates, progress.seconds))
            self._optimizer.zero()
            progress.updates += 1
            progress.places += gathered
            self._average.update(self._task.module, progress.updates)
            yield losses / gathered, tried.tolist(), right.tolist()
            gathered, losses = 0, 0.0
            tried, right = np.zeros(0, int), np.zeros(0, int)
            if stop() or progress.seconds >= 60 * plan.minutes:
                return

    def _groups(self) -> Iterator[list[Item]]:
        """Epoch after epoch, from where `progress` says, each of what there is when it begins."""
        progress = self.progress
        while True:
            self._store.refresh()
            items = [item for item in self._store.items if not item.held and item.known > 0]
            if progress.items != len(items):
                # The corpus has grown: what was done of an epoch is another order's.
                progress.epoch, progress.group = progress.epoch + bool(progress.group), 0
                progress.items = len(items)
            draw = np.random.default_rng([self.plan.seed, progress.epoch])
            for index, group in enumerate(groups(items, self.plan.per_run, draw)):
                if index >= progress.group:
                    progress.group = index + 1
                    yield group
            progress.epoch, progress.group = progress.epoch + 1, 0

    def _line(self) -> str:
        progress = self.progress
        rate = progress.places / max(progress.seconds, 1e-9)
        left = max(self.plan.minutes - progress.seconds / 60, 0)
        return (
            f"epoch {progress.epoch}, update {progress.updates},"
            f" {progress.places:,} places ({rate:.0f}/s), {left:.0f} min left,"
            f" {self.recent.describe()}"
        )


def _add(sums: Any, counts: list[int]) -> Any:
    """Counts of batches whose chains may have ended at different steps."""
    longest = max(len(sums), len(counts))
    return np.pad(sums, (0, longest - len(sums))) + np.pad(counts, (0, longest - len(counts)))
