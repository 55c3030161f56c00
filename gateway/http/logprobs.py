"""Log-probabilities as the wire writes them."""

from __future__ import annotations

from typing import Any

from gateway.engine.requests import TokenLogprob
from gateway.http.backend import Vocabulary


def described(entry: TokenLogprob, vocabulary: Vocabulary) -> dict[str, Any]:
    """A token with its alternatives, as chat completions and a finished Responses part say it."""
    return {
        **_token(entry.id, entry.logprob, vocabulary),
        "top_logprobs": [_token(token, logprob, vocabulary) for token, logprob in entry.top],
    }


def token_text(token: int, vocabulary: Vocabulary) -> str:
    """Its bytes as text, with U+FFFD for what is no whole character."""
    return vocabulary.token_bytes(token).decode("utf-8", "replace")


def _token(token: int, logprob: float, vocabulary: Vocabulary) -> dict[str, Any]:
    raw = vocabulary.token_bytes(token)
    return {"token": raw.decode("utf-8", "replace"), "bytes": list(raw), "logprob": logprob}
