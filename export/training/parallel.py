"""What is trained of drafters without chains of states: Medusa's heads and small draft models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from export.heads.attention import CausalAttention, Rotary
from export.heads.block import BlockShape, DecoderBlock, RmsNorm
from export.heads.head import Borrowed, look_up, project
from export.heads.medusa import Medusa
from export.training.batches import Batch
from export.training.drafting import Lesson, Outcome, Vocabulary


class MedusaTask:
    """Head i reads the hidden state at a place and answers for the token i + 2 places behind it."""

    def __init__(self, heads: Medusa, columns: slice, vocabulary: Vocabulary) -> None:
        self.module, self.columns = heads, columns
        self._heads, self._vocabulary = heads, vocabulary

    def learn(self, batch: Batch, lesson: Lesson, generator: torch.Generator) -> Outcome:
        chosen = self._vocabulary.choose(batch, lesson, generator)
        loss, tried, right = batch.features.new_zeros(()), list[int](), list[int]()
        for head, weight in zip(range(self._heads.shape.heads), lesson.step_weights, strict=False):
            anchors, rows = _known(batch, head + 1)
            states = self._heads.states(batch.features[anchors], head)
            logits = self._heads.logits(states, head, chosen.ids)
            judged = self._vocabulary.judge(logits, batch, rows, chosen, lesson)
            loss = loss + weight * judged.loss
            tried.append(judged.tried)
            right.append(judged.right)
        return Outcome(loss, tried[0], tried, right)

    @torch.no_grad()
    def draft(self, batch: Batch, steps: int) -> tuple[Tensor, Tensor]:
        anchors = _answered(batch)
        right = torch.zeros(len(anchors), steps, dtype=torch.bool)
        for head in range(min(steps, self._heads.shape.heads)):
            states = self._heads.states(batch.features[anchors], head)
            best = self._heads.logits(states, head).argmax(-1)
            right[:, head] = _agrees(batch, anchors, head + 1, best).cpu()
        return anchors, right


class DraftModel(nn.Module):
    """A Llama of few layers with its target's embeddings and LM head, named as Llamas are."""

    def __init__(
        self, block: BlockShape, layers: int, rotary: Rotary, embeddings: Tensor, lm_head: Tensor
    ) -> None:
        super().__init__()
        self.shape, self.rotary = block, rotary
        self.model = nn.ModuleDict(
            {
                "layers": nn.ModuleList(DecoderBlock(block) for _ in range(layers)),
                "norm": RmsNorm(block.hidden, block.epsilon),
            }
        )
        self.target = Borrowed(embeddings, lm_head)

    def states(self, ids: Tensor) -> Tensor:
        """[N] tokens of one text -> [N, hidden], behind the final norm."""
        attention, positions = CausalAttention(), torch.arange(len(ids), device=ids.device)
        x = look_up(ids, None, self.target)[None]
        layers = self.model["layers"]
        assert isinstance(layers, nn.ModuleList)
        for index, layer in enumerate(layers):
            x = layer(x, index, attention, self.rotary, positions)
        states: Tensor = self.model["norm"](x)[0]
        return states

    def logits(self, states: Tensor, columns: Tensor | None = None) -> Tensor:
        return project(states, None, self.target, columns)


class DraftTask:
    """The next token, everywhere: what a draft model sees of a text are its tokens alone."""

    def __init__(self, drafter: DraftModel, columns: slice, vocabulary: Vocabulary) -> None:
        self.module, self.columns = drafter, columns
        self._drafter, self._vocabulary = drafter, vocabulary

    def learn(self, batch: Batch, lesson: Lesson, generator: torch.Generator) -> Outcome:
        chosen = self._vocabulary.choose(batch, lesson, generator)
        places = (batch.row_of >= 0).nonzero()[:, 0]
        logits = self._drafter.logits(self._states(batch)[places], chosen.ids)
        judged = self._vocabulary.judge(logits, batch, batch.row_of[places], chosen, lesson)
        return Outcome(judged.loss, judged.tried, [judged.tried], [judged.right])

    @torch.no_grad()
    def draft(self, batch: Batch, steps: int) -> tuple[Tensor, Tensor]:
        """The round's text has the token at anchor + 1 already, and drafts what is behind it."""
        anchors, states = _answered(batch), self._states(batch)
        right = torch.zeros(len(anchors), steps, dtype=torch.bool)
        for step in range(steps):
            places, _ = batch.behind(anchors, step + 1)
            best = self._drafter.logits(states[places]).argmax(-1)
            right[:, step] = _agrees(batch, anchors, step + 1, best).cpu()
        return anchors, right

    def _states(self, batch: Batch) -> Tensor:
        return torch.cat([self._drafter.states(batch.ids[a:b]) for a, b in batch.segments])


def _known(batch: Batch, distance: int) -> tuple[Tensor, Tensor]:
    """Places behind which, at `distance`, the target is known, and its rows."""
    places = torch.arange(len(batch.ids), device=batch.ids.device)
    ahead, inside = batch.behind(places, distance)
    rows = torch.where(inside, batch.row_of[ahead], -1)
    chosen = (rows >= 0).nonzero()[:, 0]
    return chosen, rows[chosen]


def _answered(batch: Batch) -> Tensor:
    """Anchors whose first drafted token is an answer's."""
    anchors, rows = _known(batch, 1)
    return anchors[batch.answers[rows]]


def _agrees(batch: Batch, anchors: Tensor, distance: int, best: Tensor) -> Tensor:
    places, inside = batch.behind(anchors, distance)
    rows = batch.row_of[places]
    return (best == batch.top_ids[rows.clamp_min(0), 0]) & inside & (rows >= 0)
