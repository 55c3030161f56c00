"""From prompts to the pieces of an answer: what the routes of both endpoints share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from gateway.calls.reading import Reading
from gateway.engine.requests import GenerationRequest
from gateway.http.backend import Vocabulary
from gateway.http.completions.choices import Choices
from gateway.http.completions.pieces import Echo, Piece, PieceReader, joined
from gateway.http.completions.schema import Common


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """`text` is what an echo repeats."""

    ids: tuple[int, ...]
    text: str


def generation_requests(
    common: Common, prompts: Sequence[EncodedPrompt], *, echo: bool
) -> list[GenerationRequest]:
    return [
        common.decoding.request(
            prompt.ids,
            common.max_tokens,
            top_logprobs=common.top_logprobs,
            prompt_logprobs=echo and common.logprobs,
        )
        for prompt in prompts
    ]


class CompletionAnswer:
    """The pieces of all choices, as they come."""

    def __init__(
        self,
        choices: Choices,
        vocabulary: Vocabulary,
        common: Common,
        echoed: Sequence[EncodedPrompt] = (),
        reading: Callable[[], Reading | None] = lambda: None,
    ) -> None:
        """`reading` makes what reads a choice that may be more than text."""
        echoes = [Echo(prompt.text, prompt.ids, common.logprobs) for prompt in echoed]
        self._choices = choices
        self._readers = []
        for index in range(len(choices)):
            echo = echoes[index // common.n] if echoes else None
            reader = PieceReader(index, vocabulary, echo, common.logprobs, reading())
            self._readers.append(reader)

    async def pieces(self) -> AsyncGenerator[Piece]:
        for reader in self._readers:
            for piece in reader.begin():
                yield piece
        async with aclosing(self._choices.events()) as events:
            async for index, event in events:
                for piece in self._readers[index].read(event):
                    yield piece

    async def whole(self) -> list[Piece]:
        """One piece for each choice."""
        parts: list[list[Piece]] = [[] for _ in self._readers]
        async for piece in self.pieces():
            parts[piece.index].append(piece)
        return [joined(pieces) for pieces in parts]
