"""What changes single logits: penalties, bias, and the tokens that may not come yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.sampling.parameters import Sampling

_NOTHING = Counter[int]()


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes to the logits of `ids` [m].

    `seen` where the token is in the prompt or the answer, `counts` its occurrences in the answer,
    `bias` what is added (-inf forbids it).
    """

    ids: NDArray[np.int64]
    seen: NDArray[np.bool_]
    counts: NDArray[np.float64]
    bias: NDArray[np.float64]

    def apply(self, sampling: Sampling, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """The target's `logits` [m] of `ids`, changed."""
        penalty = sampling.repetition_penalty
        if penalty != 1:
            repeated = np.where(logits > 0, logits / penalty, logits * penalty)
            logits = np.where(self.seen, repeated, logits)
        if sampling.presence_penalty:
            logits = logits - sampling.presence_penalty * (self.counts > 0)
        if sampling.frequency_penalty:
            logits = logits - sampling.frequency_penalty * self.counts
        return logits + self.bias


class History:
    """The tokens of one request that processing depends on.

    Only `commit` changes it. Draft tokens ahead of a row are given to `patch` and leave no trace.
    Tokens in `endings` are forbidden while the answer is shorter than `min_tokens`.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int], endings: Collection[int]) -> None:
        self.sampling = sampling
        self.endings = frozenset(endings) if sampling.min_tokens else frozenset[int]()
        self.length = 0
        self.prompt = frozenset(prompt) if sampling.repetition_penalty != 1 else frozenset[int]()
        self.counts: Counter[int] = Counter()
        self.bias: dict[int, float] = {}
        for token, bias in sampling.logit_bias:
            self.bias[token] = self.bias.get(token, 0.0) + bias
        self.touched = {*self.prompt, *self.bias}

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` are part of the answer now."""
        self.length += len(tokens)
        if self.sampling.penalised:
            self.counts.update(tokens)
            self.touched.update(tokens)

    def patch(self, ahead: Sequence[int]) -> Patch | None:
        """The changes for the row behind the answer so far and the draft tokens `ahead`."""
        forbidding = bool(self.endings) and self.length + len(ahead) < self.sampling.min_tokens
        penalised = self.sampling.penalised
        if not (self.bias or forbidding or penalised):
            return None
        return Patch(self, Counter(ahead) if penalised and ahead else _NOTHING, forbidding)


@dataclass(frozen=True, slots=True)
class Patch:
    """What changes in one row. `ahead` counts the draft tokens between the answer and the row."""

    history: History
    ahead: Counter[int]
    forbidding: bool

    def among(self, ids: Sequence[int]) -> tuple[NDArray[np.intp], Changes]:
        """Where in `ids` tokens are whose logit changes, and how."""
        touched = self._touched()
        places = [place for place, token in enumerate(ids) if token in touched]
        changes = self._changes([ids[place] for place in places])
        return np.array(places, dtype=np.intp), changes

    def all(self) -> Changes:
        """Every token whose logit changes."""
        return self._changes(sorted(self._touched()))

    def rising(self, listed: Collection[int]) -> Changes | None:
        """Tokens not `listed` whose logit may have grown."""
        sampling, history = self.history.sampling, self.history
        rising = {token for token, bias in history.bias.items() if bias > 0}
        if sampling.repetition_penalty < 1:
            rising.update(history.prompt, history.counts, self.ahead)
        elif sampling.presence_penalty < 0 or sampling.frequency_penalty < 0:
            rising.update(history.counts, self.ahead)
        rising.difference_update(listed)
        return self._changes(sorted(rising)) if rising else None

    @property
    def only_lowers(self) -> bool:
        """Logits stay or fall, each by what was said so far alone."""
        sampling = self.history.sampling
        penalties = (sampling.presence_penalty, sampling.frequency_penalty)
        falling = sampling.repetition_penalty >= 1 and min(penalties) >= 0
        return falling and not (self.forbidding or self.history.bias)

    def lowered(self, token: int, logit: float) -> float | None:
        """What `Changes.apply` makes of it, where `only_lowers`; None: it stays."""
        history, sampling = self.history, self.history.sampling
        count = history.counts[token] + self.ahead[token]
        if not count and token not in history.prompt:
            return None
        penalty = sampling.repetition_penalty
        logit = logit / penalty if logit > 0 else logit * penalty
        if count:
            logit -= sampling.presence_penalty
            logit -= sampling.frequency_penalty * count
        return logit

    def _touched(self) -> Set[int]:
        history, ahead = self.history, self.ahead
        touched = history.touched
        if not touched.issuperset(ahead):
            touched = touched.union(ahead)
        return touched | history.endings if self.forbidding else touched

    def _changes(self, ids: Sequence[int]) -> Changes:
        history, ahead = self.history, self.ahead
        prompt, bias = history.prompt, history.bias
        answer, drafted = history.counts.get, ahead.get
        counts = [answer(token, 0) + drafted(token, 0) for token in ids]
        seen = [count > 0 or token in prompt for token, count in zip(ids, counts, strict=True)]
        added = [bias.get(token, 0.0) for token in ids]
        if self.forbidding:
            endings = history.endings
            added = [
                -np.inf if token in endings else value
                for token, value in zip(ids, added, strict=True)
            ]
        return Changes(
            np.array(ids, dtype=np.int64),
            np.array(seen, dtype=np.bool_),
            np.array(counts, dtype=np.float64),
            np.array(added, dtype=np.float64),
        )
