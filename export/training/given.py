"""Prompts of a user as a script: every call takes the next, again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from export.training.desk import Desk, Exchange, Script
from export.training.prompts import Prompt

GIVEN = "given"


class GivenPrompts:
    """Each prompt is answered mostly greedily the first time, and sampled from then on."""

    def __init__(self, prompts: Sequence[Prompt], seed: Sequence[int], held_share: float) -> None:
        self._prompts = prompts
        self._held_share = held_share
        self._order = np.random.default_rng(list(seed)).permutation(len(prompts))
        self._taken = 0

    def __call__(self, desk: Desk) -> Script[None]:
        again, place = divmod(self._taken, len(self._prompts))
        self._taken += 1
        index = int(self._order[place])
        # By the prompt, not by the script: what is held must not come back in training.
        desk.held = bool(np.random.default_rng(index).random() < self._held_share)
        return self._script(desk, self._prompts[index], again > 0)

    def _script(self, desk: Desk, prompt: Prompt, sampled: bool) -> Script[None]:
        manner = desk.sampled() if sampled else desk.manner()
        chats = desk.speech.chats
        ids = desk.speech.question(prompt.messages) if chats else desk.speech.encode(prompt.text)
        exchange = yield from desk.answered(ids, manner)
        if exchange is None:
            return
        for turn in prompt.turns if chats else ():
            ids = desk.speech.next_turn(exchange.ids, turn)
            following = yield from desk.answered(ids, manner)
            if following is None:
                break
            exchange = Exchange(following.ids, exchange.spans + following.spans)
        desk.keep(GIVEN, exchange)
