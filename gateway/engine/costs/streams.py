"""The streams of an engine and what each brings into a run."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.engine.costs.shape import NOBODY, Load, RunShape
from models.rows import LEAST_WIDTH
from models.slots import Slot

_WEIGHT = 0.2
"""Weight of one round in a stream's running mean: drafts change within some rounds."""


@dataclass(slots=True, eq=False)
class Stream:
    """One answer that is being decoded: where its text is cached, and its tokens a run of late."""

    slot: Slot
    tokens: float = 1.0

    def ran(self, tokens: int) -> None:
        self.tokens += _WEIGHT * (tokens - self.tokens)


class Streams:
    """Those that decode now."""

    def __init__(self) -> None:
        self._streams: list[Stream] = []

    def __len__(self) -> int:
        return len(self._streams)

    def enter(self, slot: Slot) -> Stream:
        stream = Stream(slot)
        self._streams.append(stream)
        return stream

    def leave(self, stream: Stream) -> None:
        self._streams.remove(stream)

    def load(self, own: Stream) -> Load:
        """What `own`'s next row joins, if everybody goes on as of late."""
        if len(self._streams) == 1:
            return Load(NOBODY, own.slot.length)
        others = [stream for stream in self._streams if stream is not own]
        return Load(
            RunShape(
                len(others),
                round(sum(stream.tokens for stream in others)),
                sum(stream.slot.length for stream in others),
                round(
                    sum(stream.slot.length * max(stream.tokens, LEAST_WIDTH) for stream in others)
                ),
            ),
            own.slot.length,
        )
