"""One request's sampling: its parameters, and the tokens that they depend on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from models.constraints.allowed import Guidance
from models.draft import Proposal
from models.sampling.distribution import Distribution, Draw, TargetRow
from models.sampling.history import History
from models.sampling.noise import Purpose
from models.sampling.parameters import Sampling
from models.sampling.processing import process


class Sampler:
    """Processes rows of the target behind committed tokens and drafts.

    Only `commit` changes it. `endings` may not come while the answer is shorter than
    `min_tokens`; what `guidance` does not allow never comes. `opened` counts the whole rows that
    had to be looked at.
    """

    def __init__(
        self,
        sampling: Sampling,
        prompt: Sequence[int],
        endings: Collection[int] = (),
        guidance: Guidance | None = None,
    ) -> None:
        assert sampling.greedy or sampling.seed is not None, "a request is opened with a seed"
        self.sampling = sampling
        self.seed = sampling.seed or 0
        self.opened = 0
        self._prompt_length = len(prompt)
        self._history = History(sampling, prompt, endings)
        self._guidance = guidance

    @property
    def takes_likeliest(self) -> bool:
        """The token is the most likely one of the target as it is, whatever came before."""
        return self._guidance is None and self.sampling.plain

    @property
    def position(self) -> int:
        """Absolute position of the next token."""
        return self._prompt_length + self._history.length

    def distribution(self, row: TargetRow, ahead: Sequence[int] = ()) -> Distribution:
        """What the token behind the committed ones and the drafts `ahead` is drawn from."""
        if self._guidance is not None:
            return self._guided(row, ahead, self._guidance)
        if self.takes_likeliest:
            return Distribution.single(int(row.ids[0]))
        return process(row, self.sampling, self._history.patch(ahead), self._note_opened)

    def _guided(self, row: TargetRow, ahead: Sequence[int], guidance: Guidance) -> Distribution:
        """The same among the tokens that are allowed. All of them are asked for only where that
        matters: mostly one is forced, or the most likely one is allowed."""
        only = guidance.only(ahead)
        if only is not None:
            return Distribution.single(only)
        likeliest = int(row.ids[0])
        if self.sampling.plain and guidance.allows(likeliest, ahead):
            return Distribution.single(likeliest)
        patch, allowed = self._history.patch(ahead), guidance.allowed(ahead)
        return process(row, self.sampling, patch, self._note_opened, allowed)

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
        if self._guidance is not None:
            self._guidance.commit(tokens)

    def _note_opened(self) -> None:
        self.opened += 1
