"""Several answers to one prompt: what they share, and what each has of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.engine.requests import GenerationRequest, PromptScored
from models.sampling.noise import choice_seed


class SharedPrompt:
    """Prefilled by the first of several choices for all of them.

    `settle` is called when its K/V is in a slot, and again when the first choice ends, however it
    ends: nobody waits for one that failed or left.
    """

    def __init__(self) -> None:
        self._settled = asyncio.Event()
        self._scored: PromptScored | None = None

    def settle(self, scored: PromptScored | None = None) -> None:
        """`scored` are the prompt's log-probabilities, where they were asked for and came."""
        if not self._settled.is_set():
            self._scored = scored
            self._settled.set()

    async def wait(self) -> PromptScored | None:
        await self._settled.wait()
        return self._scored


def of_choice(request: GenerationRequest, index: int) -> GenerationRequest:
    """Choice `index` of a request whose seed is known."""
    sampling = request.sampling
    assert sampling.seed is not None, "a fresh seed was drawn when the request was opened"
    return replace(request, sampling=replace(sampling, seed=choice_seed(sampling.seed, index)))
