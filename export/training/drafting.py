"""What is trained of a head that drafts token after token: its chains on packed texts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from export.heads.head import SteppingHead
from export.training.batches import Batch
from export.training.chains import ChainAttention, read_entries
from export.training.losses import Candidates, candidates, cross_entropy, teach

_OUTLIER = 40.0
"""Scaled features beyond this are an attention sink's: they stay inputs and get no gradient."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """How places count. `step_weights` has a weight per unrolled step.

    Chains whose draft was not the target's first choice go on with the chance `persistence`.
    `sampled` columns of the rest of the vocabulary stand for it; the target's `named` likeliest
    tokens are told apart. Features of unit size get `noise`, so that small corpora are not learned
    by heart.
    """

    step_weights: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7)
    prompt_weight: float = 0.5
    persistence: float = 0.25
    sampled: int = 1024
    named: int = 24
    sharpness: float = 1.0
    noise: float = 0.4


@dataclass(frozen=True, slots=True)
class Judged:
    """Of drafts [A]: the loss, which were the target's first choice, answers' places and right."""

    loss: Tensor
    found: Tensor
    tried: int
    right: int


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Ids are learned out of `size`, the `frequent` ones told apart in every batch; `drafted` ones
    can be drafted in the end (None: all)."""

    size: int
    frequent: Tensor
    drafted: Tensor | None = None

    def choose(self, batch: Batch, lesson: Lesson, generator: torch.Generator) -> Candidates:
        named = batch.top_ids[:, : lesson.named]
        return candidates(
            named, self.frequent, self.size, sampled=lesson.sampled, generator=generator
        )

    def best(self, logits: Tensor) -> Tensor:
        """[A] ids of logits [A, drafted]."""
        places = logits.argmax(-1)
        return places if self.drafted is None else self.drafted[places]

    def judge(
        self, logits: Tensor, batch: Batch, rows: Tensor, chosen: Candidates, lesson: Lesson
    ) -> Judged:
        """Logits [A, C] of the chosen ids against `rows` [A] of the target."""
        answers = batch.answers[rows]
        teacher = teach(
            batch.top_ids[rows, : lesson.named],
            batch.top_logs[rows, : lesson.named],
            torch.where(answers, 1.0, lesson.prompt_weight),
            sharpness=lesson.sharpness,
        )
        loss = (cross_entropy(logits, chosen, teacher) * teacher.weights).sum()
        found = chosen.ids[logits.detach().argmax(-1)] == teacher.ids[:, 0]
        return Judged(loss, found, int(answers.sum()), int(found[answers].sum()))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A batch's loss, to be minimised (a sum over places), and per step how many answer places
    there were and at how many the draft was the target's first choice."""

    loss: Tensor
    places: int
    tried: list[int]
    right: list[int]


class Task(Protocol):
    """What the trainer trains."""

    columns: slice

    @property
    def module(self) -> nn.Module:
        """What is trained."""

    def learn(self, batch: Batch, lesson: Lesson, generator: torch.Generator) -> Outcome:
        """The loss of a batch."""

    def draft(self, batch: Batch, steps: int) -> tuple[Tensor, Tensor]:
        """Anchors of the answers [A], rising, and whether the draft of each step from there is the
        target's first choice [A, steps]; False where the text ends before."""


class ChainTask:
    """EAGLE-3 and MTP: `columns` of the features, times `scale`, enter the head."""

    def __init__(
        self,
        head: nn.Module,
        columns: slice,
        scale: Tensor,
        vocabulary: Vocabulary,
    ) -> None:
        self.module, self.columns = head, columns
        self._head: SteppingHead = head  # type: ignore[assignment]
        self._scale, self._vocabulary = scale, vocabulary
        assert self._head.draft_ids() is None, "all of the vocabulary is learned"

    def learn(self, batch: Batch, lesson: Lesson, generator: torch.Generator) -> Outcome:
        anchors = self._anchors(batch, batch.row_of >= 0)
        chosen = self._vocabulary.choose(batch, lesson, generator)
        states, attention = self._begin(self._noisy(batch, lesson.noise, generator), anchors)
        loss, tried, right = states.new_zeros(()), list[int](), list[int]()
        for step, step_weight in enumerate(lesson.step_weights):
            states, judged = self._step(batch, anchors, step, states, attention, chosen, lesson)
            loss = loss + step_weight * judged.loss
            tried.append(judged.tried)
            right.append(judged.right)
            lucky = torch.rand(len(anchors), generator=generator) < lesson.persistence
            on = judged.found | lucky.to(anchors.device)
            on &= self._known(batch, anchors, step + 2)
            kept = on.nonzero()[:, 0]
            if not len(kept) or step + 1 == len(lesson.step_weights):
                break
            anchors, states = anchors[kept], states[kept]
            attention.keep(kept)
        return Outcome(loss, tried[0], tried, right)

    @torch.no_grad()
    def draft(self, batch: Batch, steps: int) -> tuple[Tensor, Tensor]:
        answers = (batch.row_of >= 0) & batch.answers[batch.row_of]
        anchors = self._anchors(batch, answers)
        states, attention = self._begin(batch, anchors)
        right = torch.zeros(len(anchors), steps, dtype=torch.bool)
        for step in range(steps):
            places, _ = batch.behind(anchors, step + 1)
            states = self._advance(batch, anchors, step, states, attention)
            best = self._vocabulary.best(self._head.logits(states, self._vocabulary.drafted))
            rows = batch.row_of[places]
            first = batch.top_ids[rows.clamp_min(0), 0]
            found = (best == first) & self._known(batch, anchors, step + 1)
            right[:, step] = found.cpu()
        return anchors, right

    def _anchors(self, batch: Batch, known: Tensor) -> Tensor:
        """Places whose next place is known: the first token that a chain drafts is behind that."""
        places = known.nonzero()[:, 0]
        places = places[places > 0]
        return places[batch.segment[places - 1] == batch.segment[places]] - 1

    def _known(self, batch: Batch, anchors: Tensor, distance: int) -> Tensor:
        places, inside = batch.behind(anchors, distance)
        return inside & (batch.row_of[places] >= 0)

    def _noisy(self, batch: Batch, noise: float, generator: torch.Generator) -> Batch:
        drawn = torch.randn(batch.features.shape, generator=generator).to(batch.features.device)
        return dataclasses.replace(batch, features=batch.features + noise * drawn / self._scale)

    def _begin(self, batch: Batch, anchors: Tensor) -> tuple[Tensor, ChainAttention]:
        features = batch.features * self._scale
        states = self._head.enter(features)
        sinks = features.abs().amax(-1, keepdim=True) > _OUTLIER
        states = torch.where(sinks, states.detach(), states)
        entries = read_entries(self._head, batch, states)
        return states[anchors], ChainAttention(entries, batch, anchors)

    def _advance(
        self,
        batch: Batch,
        anchors: Tensor,
        step: int,
        states: Tensor,
        attention: ChainAttention,
    ) -> Tensor:
        places, _ = batch.behind(anchors, step + 1)
        embeds = self._head.embed(batch.ids[places])
        positions = batch.positions[anchors] + step
        return self._head.step(embeds[None], states[None], attention, positions)[0]

    def _step(
        self,
        batch: Batch,
        anchors: Tensor,
        step: int,
        states: Tensor,
        attention: ChainAttention,
        chosen: Candidates,
        lesson: Lesson,
    ) -> tuple[Tensor, Judged]:
        """The states behind the step, and what its drafts were."""
        states = self._advance(batch, anchors, step, states, attention)
        rows = batch.row_of[batch.behind(anchors, step + 1)[0]]
        logits = self._head.logits(states, chosen.ids)
        judged = self._vocabulary.judge(logits, batch, rows, chosen, lesson)
        return states, judged
