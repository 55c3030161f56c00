"""A training of one drafter in a working directory: begun or gone on with, then written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from export.checkpoint import inspect_source, load_checkpoint
from export.heads.facts import target_facts
from export.sources import Source
from export.training.batches import Store
from export.training.damage import explained
from export.training.kinds import KINDS, Basics, Kind, Setting
from export.training.report import Tally, evaluate, held_items, table
from export.training.trainer import Plan, Trainer
from models.errors import UserError
from models.package import Package

LEAST_TEXTS = 8
"""Fewer texts to learn from are a mistake, not a small corpus."""

STEPS = 4
EVALUATED = 60
_CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    kind: str
    seed: int = 0
    draft_vocab: int = 24576
    threads: int | None = None
    device: str = "cpu"


class TrainingSession:
    """`work` holds the corpus, its features, and a directory for what each kind has learned.

    `source` is the checkpoint that the package was made of.
    """

    def __init__(
        self, package: Package, source: Source, work: Path, options: TrainingOptions
    ) -> None:
        self._options = options
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)
        self._store = _open_store(work)
        self._place = work / options.kind
        self._place.mkdir(parents=True, exist_ok=True)
        spec = package.manifest.target
        checkpoint = load_checkpoint(source, inspect_source(source))
        facts = target_facts(checkpoint, spec.context_length)
        self._setting = Setting(
            facts,
            checkpoint.model,
            spec,
            Basics.of(self._store, facts, options.seed, self._place / "sizes.npy"),
            min(options.draft_vocab, facts.vocab_size),
            torch_device(options.device),
            _learned(work / "eagle3" / _CHECKPOINT),
        )
        self._kind: Kind = KINDS[options.kind]
        self._task = self._kind.begin(self._setting)
        self._trainer = Trainer(self._task, self._store, self._plan(0.0), self._place / _CHECKPOINT)

    def train(
        self, minutes: float, stop: Callable[[], bool], report: Callable[[str], None]
    ) -> None:
        """For `minutes` more than there were.

        Raises `UserError` where there is no time, and nothing that was learned before.
        """
        passed = self._trainer.progress.seconds / 60
        if not passed + minutes:
            raise UserError(
                "there was no time left to learn: the same command goes on from here, or give"
                " more --minutes.",
                code="no_time_left",
                param="--minutes",
            )
        self._trainer.plan = self._plan(passed + minutes)
        self._trainer.run(stop, report)

    def measure(self) -> dict[str, Tally]:
        """Of the averaged parameters, on held-out text."""
        held = held_items(self._store, EVALUATED)
        with self._trainer.averaged():
            return evaluate(self._task, self._store, held, STEPS, self._setting.device)

    def write(self, directory: Path, command: str) -> str:
        """The head in its published layout with a report beside it; the report as a table."""
        tallies = self.measure()
        with self._trainer.averaged():
            self._kind.write(self._task, self._setting, directory)
        self._note(directory, command, tallies)
        return table(tallies)

    def _note(self, directory: Path, command: str, tallies: Mapping[str, Tally]) -> None:
        """How the head was made, into its config and, with all kinds of text, into a report."""
        progress = self._trainer.progress
        learned = [item for item in self._store.items if not item.held]
        made = {
            "command": command,
            "seed": self._options.seed,
            "tokens": sum(item.end - item.begin for item in learned),
            "answer_tokens": sum(item.answers for item in learned),
            "places": progress.places,
            "updates": progress.updates,
            "minutes": round(progress.seconds / 60, 1),
            "coverage": self._coverage(),
            "held_out": tallies["all"].summary() if tallies else {},
        }
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        _write_json(directory / "config.json", {**config, "training": made})
        kinds = {kind: tally.summary() for kind, tally in tallies.items()}
        _write_json(directory / "report.json", {**made, "held_out": kinds})
        (directory / "report.txt").write_text(table(tallies) + "\n", encoding="utf-8")

    def _coverage(self) -> float:
        """Share of held-out answers that the draft vocabulary has."""
        if self._options.kind != "eagle3":
            return 1.0
        size = self._setting.facts.vocab_size
        counts = self._store.frequencies(size, held=True, prompts=0.0)
        ids = self._setting.frequent(self._setting.draft_vocab).numpy()
        return round(float(counts[ids].sum() / max(counts.sum(), 1.0)), 4)

    def _plan(self, minutes: float) -> Plan:
        return Plan(
            minutes=minutes,
            lesson=self._kind.lesson,
            rates=self._kind.rates,
            seed=self._options.seed,
        )


def _open_store(work: Path) -> Store:
    features = work / "features"
    store = Store(work / "corpus", features) if features.is_dir() else None
    if store is None or sum(not item.held for item in store.items) < LEAST_TEXTS:
        raise UserError(
            "there was no time to write enough text to learn from: give more --minutes.",
            code="corpus_too_small",
            param="--minutes",
        )
    return store


def _learned(checkpoint: Path) -> Mapping[str, torch.Tensor] | None:
    if not checkpoint.is_file():
        return None
    with explained(checkpoint, "remove it to begin without it"):
        averages: Mapping[str, torch.Tensor] = torch.load(
            checkpoint, weights_only=True, map_location="cpu"
        )["average"]
        return averages


def torch_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "--device cuda: PyTorch finds no CUDA device here.",
            code="invalid_option",
            param="--device",
        )
    return torch.device(name)


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
