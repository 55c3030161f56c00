"""What an engine tells of its answers while it makes them: counts and times, never text."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class RoundSeen(NamedTuple):
    """One round. Times in seconds.

    `drafter` is who proposed the tokens that were verified, joined by `+`; `none` where none were.
    The first `accepted` depths of the draft were accepted. `overhead` is what the round took beside
    its draft and its run: the event loop, acceptance, what is said, and the runs of others.
    """

    policy: str
    drafter: str
    verified: int
    accepted: int
    draft: float
    verify: float
    overhead: float


class Observer(Protocol):
    """Called on the engine's loop: whatever it does, streams wait for it, or what they say does."""

    def started(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        """A request got its slot, `waited` seconds after it came."""

    def first_token(self, seconds: float) -> None:
        """`seconds` after the request came."""

    def more_tokens(self, count: int, seconds: float) -> None:
        """`count` tokens together, `seconds` after those before."""

    def round(self, seen: RoundSeen) -> None: ...

    def ended(self, reason: str, seconds: float) -> None:
        """`reason` is how an answer finished, or `failed`, or `abandoned` by who asked for it."""


class Unobserved:
    """Nobody looks."""

    def started(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        return

    def first_token(self, seconds: float) -> None:
        return

    def more_tokens(self, count: int, seconds: float) -> None:
        return

    def round(self, seen: RoundSeen) -> None:
        return

    def ended(self, reason: str, seconds: float) -> None:
        return


UNOBSERVED: Observer = Unobserved()
