"""Who the clients are, and how long they are looked at."""

from __future__ import annotations

from dataclasses import dataclass

_SHARES = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """`windows` of either kind; `tokens` of each answer in a window; `every` is the mean number of
    seconds between two acts of a client of the storm."""

    connections: int
    generating: int
    windows: int
    tokens: int
    every: float
    seed: int

    @property
    def stalling(self) -> int:
        return self.connections // _SHARES

    @property
    def dropping(self) -> int:
        return self.connections // _SHARES

    @property
    def garbling(self) -> int:
        return self.connections // _SHARES

    @property
    def idle(self) -> int:
        return self.connections - self.generating - self.stalling - self.dropping - self.garbling

    @property
    def strangers(self) -> int:
        """All but those who generate."""
        return self.connections - self.generating
