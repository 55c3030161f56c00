"""From the events of a choice to the pieces of its text, which both transports encode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gateway.calls.parts import Part, Text
from gateway.calls.reading import Reading
from gateway.engine.requests import Delta, Event, Finished, PromptScored, TokenLogprob
from gateway.http.backend import Vocabulary
from gateway.http.completions.logprobs import Token
from models.errors import UserError
from models.tokenizer import StreamDecoder


@dataclass(frozen=True, slots=True)
class Piece:
    """Something of choice `index`: text, with its tokens where log-probabilities were asked for.

    Where there is more than text in a choice, it is in `parts`, the text as well. The last piece of
    a choice says how it ended, whether functions were `called`, all of them to their ends, and how
    many tokens it thought.
    """

    index: int
    text: str = ""
    tokens: tuple[Token, ...] = ()
    parts: tuple[Part, ...] = ()
    finished: Finished | None = None
    called: bool = False
    thought_tokens: int = 0


def joined(pieces: Sequence[Piece]) -> Piece:
    """All pieces of one choice as one."""
    return Piece(
        index=pieces[0].index,
        text="".join(piece.text for piece in pieces),
        tokens=tuple(token for piece in pieces for token in piece.tokens),
        parts=tuple(part for piece in pieces for part in piece.parts),
        finished=pieces[-1].finished,
        called=pieces[-1].called,
        thought_tokens=pieces[-1].thought_tokens,
    )


@dataclass(slots=True)
class Echo:
    """A prompt that its choices repeat.

    `scores` are known once the first choice was prefilled, where they were asked for (`scored`).
    """

    text: str
    ids: tuple[int, ...]
    scored: bool
    scores: tuple[TokenLogprob | None, ...] | None = None

    @property
    def known(self) -> bool:
        return not self.scored or self.scores is not None


class PieceReader:
    """Reads the events of choice `index`; `echo` is shared by the choices of a prompt. `reading`
    None: the choice is nothing but text."""

    def __init__(
        self,
        index: int,
        vocabulary: Vocabulary,
        echo: Echo | None,
        logprobs: bool,
        reading: Reading | None = None,
    ) -> None:
        self._index = index
        self._vocabulary = vocabulary
        self._echo = echo
        self._echoed = echo is None
        self._logprobs = logprobs
        self._reading = reading
        start = len(echo.text) if echo else 0
        self._offsets = _Offsets(vocabulary, start=start)

    def begin(self) -> Iterator[Piece]:
        """What can be said before the engine has said anything."""
        return self._repeat_prompt()

    def read(self, event: Event) -> Iterator[Piece]:
        if isinstance(event, PromptScored):
            assert self._echo is not None, "nothing else asks for the prompt's scores"
            self._echo.scores = event.logprobs
        yield from self._repeat_prompt()
        if isinstance(event, Delta):
            tokens = tuple(self._tokens(event)) if self._logprobs else ()
            if self._reading is not None:
                parts = tuple(self._reading.push(event))
                if parts or tokens:
                    yield Piece(self._index, _text_of(parts), tokens, parts)
            elif event.text or tokens:
                yield Piece(self._index, event.text, tokens)
        elif isinstance(event, Finished):
            if event.reason == "cancelled":
                raise UserError(
                    "The gateway is shutting down: the answer was cut.", code="draining"
                )
            assert self._echoed, "a prompt is scored before its first choice ends"
            yield from self._end(event)

    def _end(self, event: Finished) -> Iterator[Piece]:
        reading = self._reading
        if reading is None:
            yield Piece(self._index, finished=event)
            return
        parts = tuple(reading.finish())
        if parts:
            yield Piece(self._index, _text_of(parts), parts=parts)
        yield Piece(
            self._index,
            finished=event,
            called=reading.called,
            thought_tokens=reading.thought_tokens,
        )

    def _repeat_prompt(self) -> Iterator[Piece]:
        if self._echoed or self._echo is None or not self._echo.known:
            return
        self._echoed = True
        yield Piece(self._index, self._echo.text, tuple(_scored(self._echo, self._vocabulary)))

    def _tokens(self, delta: Delta) -> Iterable[Token]:
        for id_, logprob in zip(delta.ids, delta.logprobs, strict=True):
            yield Token(id_, self._offsets.next(id_), logprob)


def _text_of(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


class _Offsets:
    """How many characters of the text are complete before each token."""

    def __init__(self, vocabulary: Vocabulary, start: int, *, skip_special: bool = True) -> None:
        self._decoder = StreamDecoder(vocabulary, skip_special_tokens=skip_special)
        self._characters = start

    def next(self, id_: int) -> int:
        offset = self._characters
        self._characters += len(self._decoder.push((id_,)))
        return offset


def _scored(echo: Echo, vocabulary: Vocabulary) -> Iterable[Token]:
    if echo.scores is None:
        return
    offsets = _Offsets(vocabulary, 0, skip_special=False)
    for id_, logprob in zip(echo.ids, echo.scores, strict=True):
        # Where the tokenizer normalises, its tokens need not add up to the text as it was sent.
        yield Token(id_, min(offsets.next(id_), len(echo.text)), logprob)
