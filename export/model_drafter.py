"""A smaller model of the same vocabulary as a drafter of a package."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from export.chain_runner import ChainRunner
from export.draft_model import DraftModel, draft_greedily, trace_step
from export.drafter_files import write_drafter
from export.drafter_parity import Expected, Proposer, check_drafts, measure_survival, shown
from export.drafter_site import Site
from export.graph import Graph
from export.head_drafters import CHECKED_STEPS, LISTED, ROOM, TREE_WIDTH
from export.heads.step import StepGraph
from export.lowering import lower
from export.progress import Progress
from export.quantization.answers import Answer
from export.quantization.structure import shape_of
from export.rows import narrowest_window
from export.sources import weights_sha256
from models.memory import PAD_TOKENS
from models.package import DrafterSpec

STEPS, DEPTHS = (1, 2, 3, 4, 6), (3, 5)
"""Fewer than of light heads: every graph that is loaded keeps a copy of the weights."""
_LONGEST = max(STEPS)


@dataclass(frozen=True, slots=True)
class ModelPlan:
    draft: DraftModel
    kind: str = "draft-model"
    reads: str | None = None
    tap_layers: tuple[int, ...] = ()

    @property
    def describe(self) -> str:
        return f"the draft model {self.draft.checkpoint.source.name}"

    def write(self, site: Site, progress: Progress) -> DrafterSpec:
        source, vocabulary = self.draft.checkpoint.source, self.draft.checkpoint.vocab_size
        with progress.step(f"making the graphs of {self.describe}"):
            with tempfile.TemporaryDirectory(dir=site.directory) as scratch:
                step = trace_step(self.draft, Path(scratch))
            window = narrowest_window(step.model)
            bounded = window is not None and window < self.draft.positions + PAD_TOKENS
            depths = () if bounded else DEPTHS
            width = min(TREE_WIDTH, vocabulary) if depths else 0
            stored = lower(step, site.target.device)
            files = write_drafter(
                site.directory,
                self.kind,
                stored,
                steps=STEPS,
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
        shape = shape_of(Graph(step.model))
        return DrafterSpec(
            kind=self.kind,
            checkpoint=source.name,
            revision=source.revision,
            sha256=weights_sha256(source),
            longest=_LONGEST,
            draft_vocab=vocabulary,
            top_k=min(LISTED, vocabulary),
            graphs=files.graphs,
            weights=files.weights,
            tree_graphs=files.tree_graphs,
            tree_width=width,
            layers=shape.layers,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            context_length=self.draft.context_length,
            survival=survival,
            parity=parity,
        )

    def _check(self, step: StepGraph, stored: Path, site: Site) -> dict[str, float]:
        texts = [ids[: self._room] for ids in site.prompts]
        expected = []
        for ids in texts:
            tokens, logits = draft_greedily(self.draft.checkpoint.model, ids, CHECKED_STEPS)
            expected.append(Expected(tokens, logits, step.ids))
        with tempfile.TemporaryDirectory(dir=site.directory) as scratch:
            plain = write_drafter(Path(scratch), self.kind, step, steps=[CHECKED_STEPS])
            found = _drafts(Path(scratch) / plain.graphs[str(CHECKED_STEPS)], texts, "cpu")
        return check_drafts(self.describe, expected, found, _drafts(stored, texts, site.device))

    def _survival(self, path: Path, site: Site) -> tuple[float, ...]:
        answers = [answer for answer in site.answers if len(answer.all_ids) <= self._room]
        longest = max((len(answer.all_ids) for answer in answers), default=0)
        runner = ChainRunner(path, capacity=longest + ROOM, device=site.device)

        def proposer(answer: Answer) -> Proposer:
            return runner.following(answer.all_ids)

        return measure_survival(answers, proposer, _LONGEST)

    @property
    def _room(self) -> int:
        """Tokens behind which a whole draft still has positions."""
        return self.draft.positions - _LONGEST


def _drafts(path: Path, texts: Sequence[Sequence[int]], device: str) -> list[list[int]]:
    """The first steps of what the graph drafts behind each text."""
    runner = ChainRunner(path, capacity=max(map(len, texts)) + ROOM, device=device)
    return [runner.draft(ids)[:CHECKED_STEPS] for ids in texts]
