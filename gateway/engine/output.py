"""What is told of one answer: tokens as they become final, and its rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from gateway.engine.pacing import Pacer
from gateway.engine.record import Record, Round
from gateway.engine.requests import Delta, Event, FinishReason, GenerationRequest
from gateway.engine.transcript import Said, Transcript
from models.tokenizer import Tokenizer


class Output:
    """One answer's transcript and record, and the events of both.

    Rounds that are made on another thread `add` and `take` there; everything else, `tell` of each
    round first, is for the event loop.
    """

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: Tokenizer,
        endings: Collection[int],
        limit: int,
        record: Record,
        emit: Callable[[Event], None],
    ) -> None:
        self.record = record
        self.emit = emit
        self._transcript = Transcript(request, tokenizer, endings, limit)
        self._pacer: Pacer | None = None
        if request.speculation.pacing == "even":
            self._pacer = Pacer(emit, asyncio.get_running_loop())

    @property
    def paced(self) -> bool:
        """Tokens of a round are spread in time, which the event loop measures."""
        return self._pacer is not None

    @property
    def reason(self) -> FinishReason | None:
        """Why the answer ended; None: it goes on."""
        return self._transcript.reason

    @property
    def stop(self) -> str | int | None:
        """What stopped it."""
        return self._transcript.stop

    @property
    def count(self) -> int:
        """Tokens of the answer."""
        return self._transcript.count

    @property
    def left(self) -> int:
        """Tokens that still fit into it."""
        return self._transcript.left

    def add(self, tokens: Iterable[Said]) -> int:
        """As `Transcript.add`, of what was accepted just now."""
        return self._transcript.add(tokens, self.record.elapsed_ms())

    def end_at(self, token: int) -> None:
        self._transcript.end_at(token)

    def take(self) -> Delta | None:
        """What the round that goes into `tell` made final, where it is told at once."""
        return None if self.paced else self._transcript.take()

    def tell(self, made: Round, delta: Delta | None) -> None:
        """Record a round, and emit the `delta` of it."""
        self.record.mark_round(made)
        if self.paced:
            self.say()
        else:
            self._emit_delta(delta)

    def say(self) -> None:
        """Emit what became final."""
        self.record.mark_tokens(self._transcript.count)
        if self._pacer is not None and self._transcript.reason is None:
            deltas = self._transcript.take_each()
            deltas[:1] = map(self.record.tell, deltas[:1])
            self._pacer.add(deltas)
            return
        self.flush()
        self._emit_delta(self._transcript.take())

    def flush(self) -> None:
        """Hold no token back for its time."""
        if self._pacer is not None:
            self._pacer.flush()

    def cancel(self) -> None:
        """The answer ends here: emit what is held back."""
        self._transcript.close()
        self.say()

    def _emit_delta(self, delta: Delta | None) -> None:
        if delta is not None:
            self.emit(self.record.tell(delta))
