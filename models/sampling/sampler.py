"""One request's sampling: its parameters, and the tokens that they depend on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from models.draft import Proposal
from models.sampling.distribution import Distribution, Draw, TargetRow
from models.sampling.history import History
from models.sampling.noise import Purpose
from models.sampling.parameters import Sampling
from models.sampling.processing import process


class Sampler:
    """Processes rows of the target behind committed tokens and drafts.

    Only `commit` changes it. `endings` may not come while the answer is shorter than
    `min_tokens`. `opened` counts the whole rows that had to be looked at.
    """

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], endings: Collection[int] = ()
    ) -> None:
        assert sampling.greedy or sampling.seed is not None, "a request is opened with a seed"
        self.sampling = sampling
        self.seed = sampling.seed or 0
        self.opened = 0
        self._prompt_length = len(prompt)
        self._history = History(sampling, prompt, endings)

    @property
    def position(self) -> int:
        """Absolute position of the next token."""
        return self._prompt_length + self._history.length

    def distribution(self, row: TargetRow, ahead: Sequence[int] = ()) -> Distribution:
        """What the token behind the committed ones and the drafts `ahead` is drawn from."""
        if self.sampling.plain:
            return Distribution.single(int(row.ids[0]))
        return process(row, self.sampling, self._history.patch(ahead), self._note_opened)

    def draft(self, row: TargetRow, ahead: Sequence[int], *, shared: bool) -> tuple[int, Proposal]:
        """A drafter's token and its q, from the drafter's own `row`, processed like the target's.

        With `shared` noise a draft agrees with the target's coupled draw as often as can be;
        every other rule needs noise that is independent of the target's.
        """
        purpose = Purpose.TOKEN if shared else Purpose.DRAFT
        listed = self.distribution(row, ahead).listed()
        token = listed.draw(Draw(self.seed, self.position + len(ahead), purpose))
        return token, listed.proposal()

    def commit(self, tokens: Sequence[int]) -> None:
        """`tokens` are part of the answer."""
        self._history.commit(tokens)

    def _note_opened(self) -> None:
        self.opened += 1
