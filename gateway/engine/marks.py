"""Where an answer's tokens came from, one by one, and what each round did."""

from __future__ import annotations

from typing import NamedTuple


class TokenMark(NamedTuple):
    """What a token added to the text, and the round that accepted it, `ms` milliseconds after the
    request came.

    The texts of all tokens are the text of the answer. Half a character adds nothing, the token
    that completes it all of it. A U+FFFD for what the model left unfinished is its last token's
    where that was not said yet.
    """

    text: str
    round: int
    ms: float


class RoundTrace(NamedTuple):
    """One round: `verified` of its draft and `accepted` tokens, and its times in milliseconds.

    `ms` is when it was over, from when the request came. `draft_ms` is what its drafter took,
    `verify_ms` the run of the target, which other requests may have shared.
    """

    round: int
    ms: float
    draft_ms: float
    verify_ms: float
    verified: int
    accepted: int
