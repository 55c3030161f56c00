"""Draft heads (EAGLE, EAGLE-3, MTP, Medusa) as drafters of a package."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from export.chain_runner import ChainRunner
from export.drafter_files import STEP_COUNTS, write_drafter
from export.drafter_parity import Expected, Proposer, check_drafts, measure_survival, shown
from export.drafter_site import Site
from export.heads.eagle import Eagle
from export.heads.eagle3 import Eagle3
from export.heads.facts import HeadInfo
from export.heads.medusa import Medusa
from export.heads.mtp import Mtp
from export.heads.reference import draft_chain, draft_medusa
from export.heads.step import StepGraph
from export.heads.trace import trace_head
from export.heads.trace_medusa import trace_medusa
from export.lowering import lower
from export.medusa_graph import MedusaRunner, lower_medusa
from export.progress import Progress
from export.quantization.answers import Answer
from export.writer import externalise, save_graph
from models.package import DrafterSpec

LISTED = 64
TREE_WIDTH = 4
TREE_DEPTHS = (2, 3, 4, 5)
CHECKED_STEPS = 4
ROOM = 16
MEDUSA_GRAPH, MEDUSA_WEIGHTS = "medusa.onnx", "medusa.weights"
_LONGEST = max(STEP_COUNTS)
Text = tuple[Sequence[int], NDArray[np.float32]]
"""Ids, and the target's features of each."""


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """A head that drafts a token a step."""

    module: Eagle | Eagle3 | Mtp
    info: HeadInfo

    @property
    def kind(self) -> str:
        return self.info.kind

    @property
    def reads(self) -> str:
        return self.info.reads

    @property
    def tap_layers(self) -> tuple[int, ...]:
        return self.info.tap_layers

    @property
    def describe(self) -> str:
        return f"the {self.kind} head {self.info.name}"

    def write(self, site: Site, progress: Progress) -> DrafterSpec:
        info, module = self.info, self.module
        with progress.step(f"making the graphs of {self.describe}"):
            step = trace_head(module)
            # Modules of their own feed each other whole texts, which no tree is.
            depths = () if step.later else TREE_DEPTHS
            width = min(TREE_WIDTH, info.draft_vocab) if depths else 0
            stored = lower(step, site.target.device)
            files = write_drafter(
                site.directory,
                self.kind,
                stored,
                depths=depths,
                width=width,
                device=site.target.device,
            )
        path = site.directory / files.graphs[str(_LONGEST)]
        with progress.step("checking its drafts with torch"):
            parity = self._check(step, path, site)
        with progress.step("measuring how often it is right"):
            survival = self._survival(path, site)
        progress.line(shown(parity, survival))
        return DrafterSpec(
            kind=self.kind,
            checkpoint=info.name,
            revision=info.revision,
            sha256=info.sha256,
            longest=_LONGEST,
            draft_vocab=info.draft_vocab,
            top_k=min(LISTED, info.draft_vocab),
            graphs=files.graphs,
            weights=files.weights,
            reads=self.reads,
            tree_graphs=files.tree_graphs,
            tree_width=width,
            layers=module.kv_layers,
            kv_heads=module.kv_heads,
            head_dim=module.head_dim,
            lookahead=info.lookahead,
            survival=survival,
            parity=parity,
        )

    def _check(self, step: StepGraph, stored: Path, site: Site) -> dict[str, float]:
        texts = [(ids, site.observe(ids)[self.reads]) for ids in site.prompts]
        ids = step.ids
        expected = []
        for text, features in texts:
            tokens, logits = draft_chain(
                self.module, text, torch.from_numpy(features), CHECKED_STEPS
            )
            expected.append(Expected(tokens, logits.float().numpy(), ids))
        with tempfile.TemporaryDirectory(dir=site.directory) as scratch:
            plain = write_drafter(Path(scratch), self.kind, step, steps=[CHECKED_STEPS])
            path = Path(scratch) / plain.graphs[str(CHECKED_STEPS)]
            found = _drafts(path, texts, "cpu")
        return check_drafts(self.describe, expected, found, _drafts(stored, texts, site.device))

    def _survival(self, path: Path, site: Site) -> tuple[float, ...]:
        longest = max(len(answer.all_ids) for answer in site.answers)
        runner = ChainRunner(path, capacity=longest + ROOM, device=site.device)

        def proposer(answer: Answer) -> Proposer:
            ids = answer.all_ids
            return runner.following(ids, site.observe(ids)[self.reads], self.info.lookahead - 1)

        return measure_survival(site.answers, proposer, _LONGEST)


@dataclass(frozen=True, slots=True)
class MedusaPlan:
    """Heads that all answer at once."""

    module: Medusa
    info: HeadInfo

    @property
    def kind(self) -> str:
        return "medusa"

    @property
    def reads(self) -> str:
        return self.info.reads

    @property
    def tap_layers(self) -> tuple[int, ...]:
        return ()

    @property
    def describe(self) -> str:
        return f"the Medusa heads {self.info.name}"

    def write(self, site: Site, progress: Progress) -> DrafterSpec:
        info, heads = self.info, self.module.shape.heads
        with progress.step(f"making the graph of {self.describe}"):
            plain = trace_medusa(self.module)
            path = _save_medusa(lower_medusa(plain, site.target.device), site.directory)
        with progress.step("checking its drafts with torch"):
            parity = self._check(plain, path, site)
        with progress.step("measuring how often it is right"):
            survival = self._survival(path, site)
        progress.line(shown(parity, survival))
        return DrafterSpec(
            kind=self.kind,
            checkpoint=info.name,
            revision=info.revision,
            sha256=info.sha256,
            longest=heads,
            draft_vocab=info.draft_vocab,
            top_k=min(LISTED, info.draft_vocab),
            graphs={str(heads): path.name},
            weights=(MEDUSA_WEIGHTS,),
            reads=self.reads,
            survival=survival,
            parity=parity,
        )

    def _check(self, plain: onnx.ModelProto, stored: Path, site: Site) -> dict[str, float]:
        states = [site.observe(ids)[self.reads][-1] for ids in site.prompts]
        expected = []
        for state in states:
            tokens, logits = draft_medusa(self.module, torch.from_numpy(state))
            expected.append(Expected(tokens, logits.float().numpy()))
        with tempfile.TemporaryDirectory(dir=site.directory) as scratch:
            runner = MedusaRunner(_save_medusa(plain, Path(scratch)))
            found = [runner.draft(state) for state in states]
        runner = MedusaRunner(stored, device=site.device)
        return check_drafts(
            self.describe, expected, found, [runner.draft(state) for state in states]
        )

    def _survival(self, path: Path, site: Site) -> tuple[float, ...]:
        runner = MedusaRunner(path, device=site.device)

        def proposer(answer: Answer) -> Proposer:
            states = site.observe(answer.all_ids)[self.reads]
            # Of the last token there is no state yet: the one before it speaks for what follows.
            return lambda length: runner.draft(states[length - 2])

        return measure_survival(site.answers, proposer, self.module.shape.heads)


def _drafts(path: Path, texts: Sequence[Text], device: str) -> list[list[int]]:
    """The first steps of what the graph drafts behind each text."""
    longest = max(len(ids) for ids, _ in texts)
    runner = ChainRunner(path, capacity=longest + ROOM, device=device)
    return [runner.draft(ids[1:], features[:-1])[:CHECKED_STEPS] for ids, features in texts]


def _save_medusa(model: onnx.ModelProto, directory: Path) -> Path:
    save_graph(externalise(model, directory / MEDUSA_WEIGHTS), directory / MEDUSA_GRAPH)
    return directory / MEDUSA_GRAPH
