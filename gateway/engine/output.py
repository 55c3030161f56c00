"""What is told of one answer: tokens as they become final, and its rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from gateway.engine.pacing import Pacer
from gateway.engine.record import Record, Round
from gateway.engine.requests import Delta, Event, FinishReason, GenerationRequest
from gateway.engine.transcript import Accepted, TokenEnd, Transcript
from models.tokenizer import Tokenizer


class Output:
    """One answer's transcript and record, and the events of both.

    Rounds that are made on another thread `add` and `take` there and ask how far the answer is;
    everything else, `tell` of each round first, is for the event loop. Unless the text or, where it
    is `guided`, what may come decides where the answer ends, `add` only counts, and the text is
    made when the round is told.
    """

    def __init__(
        self,
        request: GenerationRequest,
        tokenizer: Tokenizer,
        endings: Collection[int],
        limit: int,
        record: Record,
        emit: Callable[[Event], None],
        *,
        guided: bool,
    ) -> None:
        self.record = record
        self.emit = emit
        self._transcript = Transcript(request, tokenizer, endings, limit)
        self._ahead: TokenEnd | None = None
        if not (guided or self._transcript.reads):
            self._ahead = TokenEnd(endings, request.sampling.min_tokens, limit)
        self._limit = limit
        self._pacer: Pacer | None = None
        if request.speculation.pacing == "even":
            self._pacer = Pacer(emit, asyncio.get_running_loop())

    @property
    def paced(self) -> bool:
        """Tokens of a round are spread in time, which the event loop measures."""
        return self._pacer is not None

    @property
    def over(self) -> bool:
        """The answer ended, though not all of it may have been told."""
        if self._ahead is not None and self._ahead.over:
            return True
        return self._transcript.reason is not None

    @property
    def reason(self) -> FinishReason | None:
        """Why the answer ended, as far as it was told; None: it goes on."""
        return self._transcript.reason

    @property
    def stop(self) -> str | int | None:
        """What stopped it."""
        return self._transcript.stop

    @property
    def count(self) -> int:
        """Tokens of the answer."""
        return (self._ahead or self._transcript).count

    @property
    def left(self) -> int:
        """Tokens that still fit into it."""
        return self._limit - self.count

    def add(self, accepted: Accepted) -> int:
        """Take the tokens of a round up to where the answer ends: how many were looked at."""
        if self._ahead is not None:
            return self._ahead.take(accepted.tokens)
        return self._transcript.add(accepted.said(), accepted.ms)

    def end_at(self, token: int) -> None:
        self._transcript.end_at(token)

    def take(self) -> Delta | None:
        """What the round that goes into `tell` made final, where that is known by now."""
        return None if self.paced or self._ahead is not None else self._transcript.take()

    def tell(self, made: Round, delta: Delta | None) -> None:
        """Record a round, and emit what it made final: `delta`, where that was taken."""
        self.record.mark_round(made)
        if self._ahead is not None:
            self._write(made.accepted)
        elif self.paced:
            self._say()
        else:
            self._emit_delta(delta)

    def tell_first(self, accepted: Accepted) -> None:
        """Emit what the first token made final, which no round said."""
        if self._ahead is not None:
            self._write(accepted)
        else:
            self._say()

    def _write(self, accepted: Accepted) -> None:
        self._transcript.add(accepted.said(), accepted.ms)
        self._say()

    def _say(self) -> None:
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
        self._say()

    def _emit_delta(self, delta: Delta | None) -> None:
        if delta is not None:
            self.emit(self.record.tell(delta))
