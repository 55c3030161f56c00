"""A learned drafter as its requests share it, and what its requests' drafters have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from models.draft import Draft, Later, Proposal, at_once
from models.drafters.calibration import Calibration
from models.drafters.drawing import Drawing
from models.drafters.graphs import DrafterGraphs
from models.drafters.judged import JudgedChain, JudgedTree, TreeCurves
from models.drafters.trees import Below, grow
from models.memory import drafter_context
from models.package import DrafterSpec
from models.slots import Slot


@dataclass(frozen=True, slots=True)
class DrafterModel:
    """The loaded graphs of one drafter and what is learnt about it.

    `vocabulary` are the noise counters of the tokens that it can propose [Vd].
    """

    spec: DrafterSpec
    kv_type: str
    graphs: DrafterGraphs
    calibration: Calibration
    vocabulary: NDArray[np.uint64]


class LearnedDrafter(ABC):
    """Implements `models.draft.Drafter` for one request in one slot; `propose` runs a graph.

    `propose` runs on the thread of the target's runs and changes nothing of the slot but what lies
    behind its committed tokens; `commit` is called on the thread that commits them. So a proposal
    for a request that was cancelled meanwhile does no harm to the slot's next owner.
    """

    runs_graph: ClassVar[bool] = True

    def __init__(self, model: DrafterModel, slot: Slot, drawing: Drawing | None) -> None:
        self.name = model.spec.kind
        self._model = model
        self._slot = slot
        self._drawing = drawing
        self._context = drafter_context(model.spec, slot.context)
        self._tokens: list[int] = []
        self._judged: JudgedChain | JudgedTree | None = None

    def reset(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)
        self._judged = None

    def propose(self, budget: int) -> Draft:
        self._judged = None
        if budget <= 0 or len(self._tokens) < 2 or len(self._tokens) > self._context:
            return Draft(source=self.name)
        return self._draft(budget)

    def commit(self, tokens: Sequence[int], later: Later = at_once) -> None:
        if self._judged is not None:
            later(self._judged.learn, tokens)
            self._judged = None
        self._settle(tokens)
        self._tokens += tokens

    @abstractmethod
    def _draft(self, budget: int) -> Draft:
        """For a budget of at least 1, behind at least two tokens."""

    def _settle(self, tokens: Sequence[int]) -> None:
        """`tokens`, not yet among the known ones, are committed: for those that keep state."""
        return

    def _likeliest(
        self,
        tokens: list[int],
        values: NDArray[np.float32],
        logsumexp: NDArray[np.float32],
    ) -> Draft:
        """A chain of the likeliest tokens, whose logits are `values` [n]."""
        logits, totals = values.tolist(), logsumexp.tolist()
        shares = [math.exp(logit - total) for logit, total in zip(logits, totals, strict=True)]
        self._judged = judged = JudgedChain(tokens, shares, self._model.calibration.greedy)
        return Draft(tuple(tokens), confidence=judged.confidence(), source=self.name)

    def _sampled(self, tokens: list[int], proposals: list[Proposal]) -> Draft:
        """A chain of tokens drawn from `proposals`, whose likeliest tokens come first.

        What confidence is made of does not depend on which token was drawn: under a rule that
        draws acceptance a choice by it would change the distribution of what is said.
        """
        assert self._drawing is not None, "drawn drafts are drawn somehow"
        calibration, shared = self._model.calibration, self._drawing.shared
        curve = calibration.shared if shared else calibration.drawn
        shares = [float(proposal.probabilities[0]) for proposal in proposals]
        self._judged = judged = JudgedChain(tokens, shares, curve, certain=shared)
        return Draft(
            tuple(tokens),
            proposals=tuple(proposals),
            confidence=judged.confidence(),
            source=self.name,
        )

    def _tree(self, below: Below, budget: int, branches: int) -> Draft:
        """A tree of likeliest tokens: nothing is drawn, so q is one-hot."""
        drawing, known = self._drawing, self._model.calibration
        if drawing is None:
            curves = TreeCurves(known.greedy, known.greedy_sibling)
        else:
            curves = TreeCurves(known.likeliest, known.likeliest_sibling, certain=drawing.shared)
        self._judged = judged = JudgedTree(grow(below, budget, branches, curves), curves)
        return judged.draft(self.name)
