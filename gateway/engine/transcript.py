"""An answer's tokens and text as they become final, and where they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gateway.engine.marks import TokenMark
from gateway.engine.requests import Delta, FinishReason, GenerationRequest, TokenLogprob
from gateway.engine.stops import ScopedScanner, Stopped, StopScanner
from models.draft import Draft
from models.tokenizer import StreamDecoder, Tokenizer


class Said(NamedTuple):
    """A token of the answer, who proposed it, and its log-probability where that was asked for."""

    id: int
    source: str
    logprob: TokenLogprob | None = None


class Accepted(NamedTuple):
    """The tokens of a round: of `draft` those on `path`, and the target's own behind them, `ms`
    milliseconds after the request came; `logprobs` where they were asked for."""

    draft: Draft
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: Sequence[TokenLogprob] | None
    ms: float

    def said(self) -> list[Said]:
        sources = (*map(self.draft.source_of, self.path), "target")
        if self.logprobs is None:
            return list(map(Said, self.tokens, sources))
        return list(map(Said, self.tokens, sources, self.logprobs))


class TokenEnd:
    """Where an answer ends that no text ends, by its tokens alone: as its `Transcript` will say,
    which takes longer."""

    def __init__(self, endings: Collection[int], least: int, limit: int) -> None:
        self.count = 0
        self.over = limit == 0
        self._endings = endings
        self._least = least
        self._limit = limit

    def take(self, tokens: Sequence[int]) -> int:
        """Take the `tokens` of a round: how many are looked at."""
        for taken, token in enumerate(tokens, start=1):
            if token in self._endings and self.count >= self._least:
                self.over = True
            else:
                self.count += 1
                self.over = self.count == self._limit
            if self.over:
                return taken
        return len(tokens)


class _Placed(NamedTuple):
    """A token with the characters of the text it adds to: from `start` up to `end`.

    Half a character adds to the one that it will be part of: then `start == end`. `mark` has the
    text that it adds.
    """

    said: Said
    mark: TokenMark
    start: int
    end: int
    number: int


class Transcript:
    """Takes tokens, gives deltas; knows where the answer ends.

    It ends before the first of `endings`, before the first of the request's stop strings in their
    scope, and where that scope says that it is over, but not within its first `min_tokens` tokens;
    and at `limit` tokens. What may be the beginning of a stop is held back. A stop takes with it
    every token that adds no character to what is left of the text; a token that it cuts stays. A
    push costs what its own tokens cost.
    """

    def __init__(
        self, request: GenerationRequest, tokenizer: Tokenizer, endings: Collection[int], limit: int
    ) -> None:
        self.count = 0
        self.reason: FinishReason | None = "length" if limit == 0 else None
        self.stop: str | int | None = None
        self._stop_ids = request.stop_ids
        self._endings = endings
        self._limit = limit
        self._least = request.sampling.min_tokens
        self._tokenizer = tokenizer
        self._decoder = StreamDecoder(tokenizer, shown=request.shown_ids)
        self._scanner = _scanner(request)
        # Positions count the characters of the whole answer; `_unsent` are those behind `_sent`.
        self._sent = 0
        self._final = 0
        self._unsent = ""
        self._waiting: deque[_Placed] = deque()
        self._round = -1
        self._ms = 0.0

    @property
    def reads(self) -> bool:
        """Whether the text may end it, as stops do: where that is can be told by the text alone."""
        return self._scanner is not None

    def add(self, tokens: Iterable[Said], ms: float = 0.0) -> int:
        """Take the `tokens` of a round up to where the answer ends; then `reason` says why.

        The first round is number 0, the prompt's; `ms` is when the tokens were accepted. Returns
        how many were looked at: what comes behind the end never was part of the answer.
        """
        self._round += 1
        self._ms = ms
        taken = 0
        for said in tokens:
            if self.reason is not None:
                break
            taken += 1
            if self._ends(said.id):
                self.end_at(said.id)
            else:
                self._append(said)
        return taken

    def take(self) -> Delta | None:
        """What became final since the last call; None where that is nothing."""
        waiting = self._waiting
        if self._scanner is None:
            placed = list(waiting)
            waiting.clear()
            return self._delta(self._final, placed)
        placed = []
        while waiting and self._is_final(waiting[0]):
            placed.append(waiting.popleft())
        return self._delta(self._final, placed)

    def take_each(self) -> list[Delta]:
        """The same, as a delta for every token with the text up to its end."""
        deltas: list[Delta | None] = []
        while self._waiting and self._is_final(self._waiting[0]):
            placed = self._waiting.popleft()
            last = not (self._waiting and self._is_final(self._waiting[0]))
            end = self._final if last else min(placed.end, self._final)
            deltas.append(self._delta(end, [placed]))
        if not deltas:
            deltas.append(self._delta(self._final, []))
        return [delta for delta in deltas if delta is not None]

    def _delta(self, end: int, placed: Sequence[_Placed]) -> Delta | None:
        """The text up to `end`, with the tokens `placed`; None where both are nothing."""
        text = self._unsent[: max(0, end - self._sent)]
        self._unsent = self._unsent[len(text) :]
        self._sent += len(text)
        if not (text or placed):
            return None
        said = [each.said for each in placed]
        return Delta(
            text=text,
            ids=tuple([token.id for token in said]),
            sources=tuple([token.source for token in said]),
            round=self._round,
            logprobs=tuple([token.logprob for token in said if token.logprob is not None]),
            marks=tuple([each.mark for each in placed]),
        )

    def end_at(self, token: int) -> None:
        """End before `token`. What the model itself leaves unfinished becomes U+FFFD."""
        self._read(self._decoder.finish())
        self._look_once_more()
        if self.reason is None:
            self.stop = token if token in self._stop_ids else None
            self._finish("stop")

    def close(self) -> None:
        """Hold nothing back any more: the answer was cancelled. One that is to have no token ends
        when its prompt was read, and so was not there yet."""
        if self.reason is None or self._limit == 0:
            self.reason = "cancelled"
        self._final = self._sent + len(self._unsent)

    def _append(self, said: Said) -> None:
        start = self._sent + len(self._unsent)
        piece, broke = self._decoder.push_whole(said.id), False
        if piece is None:
            broken = self._decoder.unfinished
            piece = self._decoder.push((said.id,))
            broke = broken and self._breaks(said.id, piece)
        # A broken character's U+FFFD belongs to the tokens before the one that broke it.
        own = self._give_back(piece) if broke else piece
        mark = TokenMark(own, self._round, self._ms)
        end = start + len(piece)
        self._waiting.append(_Placed(said, mark, start + broke, end, self.count))
        self.count += 1
        self._read(piece)
        if self.reason is None and self.count == self._limit:
            self._look_once_more()
            if self.reason is None:
                self._finish("length")

    def _ends(self, token: int) -> bool:
        """Whether the answer ends before it. Ordinary tokens out of a stop's scope are text."""
        if token not in self._endings or self.count < self._least:
            return False
        out = self._scanner is not None and self._scanner.leaving and token in self._stop_ids
        return not out or token in self._tokenizer.special_ids

    def _give_back(self, piece: str) -> str:
        """`piece` without its first character, which the token before gets where it still waits."""
        if not self._waiting:
            return piece
        last = self._waiting[-1]
        mark = last.mark._replace(text=last.mark.text + piece[0])
        self._waiting[-1] = last._replace(mark=mark, end=last.end + 1)
        return piece[1:]

    def _breaks(self, token: int, piece: str) -> bool:
        added = self._tokenizer.token_bytes(token)
        return piece.startswith("\ufffd") and bool(added) and not 0x80 <= added[0] < 0xC0

    def _read(self, piece: str) -> None:
        """Append `piece` to the text, and look for stops in it unless it is too early for them."""
        before = self._sent + len(self._unsent)
        self._unsent += piece
        self._final = before + len(piece)
        if self._scanner is None:
            return
        if self.count <= self._least:
            self._scanner.skip(piece)
            return
        found = self._scanner.push(piece)
        if found is None:
            self._final -= self._scanner.held
        else:
            self._stop_at(found, before)

    def _look_once_more(self) -> None:
        """At the end it is decided where stops count."""
        found = None if self._scanner is None or self.reason else self._scanner.finish()
        if found is not None:
            self._stop_at(found, self._sent + len(self._unsent))

    def _stop_at(self, found: Stopped, before: int) -> None:
        """`before` is where the piece begins that its end is counted from."""
        self.stop = found.stop or None
        self._cut(before + found.end - len(found.stop))

    def _cut(self, end: int) -> None:
        self._unsent = self._unsent[: end - self._sent]
        while self._waiting and self._waiting[-1].start >= end and self.count > self._least:
            self._waiting.pop()
            self.count -= 1
        self._finish("stop")

    def _finish(self, reason: FinishReason) -> None:
        """A character that the limit or a stop cut in two is left out."""
        self.reason = reason
        self._final = self._sent + len(self._unsent)
        if self._waiting:
            self._waiting[-1] = self._fitted(self._waiting[-1])

    def _fitted(self, last: _Placed) -> _Placed:
        """The last token with the text up to the end: a stop may have cut it, and what the model
        left unfinished is its own."""
        more, text = self._final - last.end, last.mark.text
        text = text + self._unsent[-more:] if more > 0 else text[: max(0, len(text) + more)]
        return last._replace(mark=last.mark._replace(text=text))

    def _is_final(self, token: _Placed) -> bool:
        if self._scanner is None or self.reason is not None or token.number < self._least:
            return True
        return token.start < self._final and token.end <= self._final


def _scanner(request: GenerationRequest) -> StopScanner | None:
    if request.stop_scope is not None:
        return ScopedScanner(request.stop, request.stop_scope())
    return StopScanner(request.stop) if request.stop else None
