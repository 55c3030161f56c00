"""Log-probabilities of choices as the two endpoints write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.engine.requests import TokenLogprob
from gateway.http.backend import Vocabulary
from gateway.http.logprobs import described


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a choice: `offset` characters of the choice's text are before it.

    The first token of a prompt has no log-probability.
    """

    id: int
    offset: int
    logprob: TokenLogprob | None


def chat_logprobs(tokens: Sequence[Token], vocabulary: Vocabulary) -> dict[str, Any]:
    entries = [described(token.logprob, vocabulary) for token in tokens if token.logprob]
    return {"content": entries, "refusal": None}


def text_logprobs(tokens: Sequence[Token], vocabulary: Vocabulary) -> dict[str, Any]:
    """The four arrays of the older endpoint, one entry per token.

    `top_logprobs` have the token itself among them, by their texts: of two tokens with the same
    text the more likely counts.
    """
    return {
        "tokens": [_name(token.id, vocabulary) for token in tokens],
        "token_logprobs": [token.logprob and token.logprob.logprob for token in tokens],
        "top_logprobs": [token.logprob and _by_text(token.logprob, vocabulary) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _by_text(logprob: TokenLogprob, vocabulary: Vocabulary) -> dict[str, float]:
    ranked = sorted((*logprob.top, (logprob.id, logprob.logprob)), key=lambda pair: -pair[1])
    by_text: dict[str, float] = {}
    for id_, value in ranked:
        by_text.setdefault(_name(id_, vocabulary), value)
    return by_text


def _name(id_: int, vocabulary: Vocabulary) -> str:
    """The token's text; half a character is its bytes, as the older endpoint writes them: two
    halves are not the same replacement character."""
    raw = vocabulary.token_bytes(id_)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
