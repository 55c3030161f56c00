"""A package's vocabulary as llguidance wants it: bytes by token, and text to tokens."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from llguidance import LLTokenizer, TokenizerWrapper

_BREAK = "\udfff"
"""Stands inside a special token that a text spells out; a lone surrogate, which no text holds."""

_BEFORE = "\x02"
"""Nothing merges with it: behind it a text is encoded as if it had no beginning."""


class Encoder(Protocol):
    """What is needed of `models.tokenizer.Tokenizer`."""

    @property
    def special_ids(self) -> Collection[int]: ...

    @property
    def special_tokens(self) -> Collection[str]: ...

    def encode(self, text: str) -> list[int]: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...


class Tokens:
    """The tokens that have logits, and how a text that must come is made of them.

    Special tokens are never part of a text: one that is spelled out is made of others.
    """

    bos_token_id = None

    def __init__(self, encoder: Encoder, vocab_size: int, eos_ids: Collection[int]) -> None:
        self._encoder = encoder
        self.eos_token_id = min(eos_ids)
        self.tokens = [encoder.token_bytes(token) for token in range(vocab_size)]
        special = {*encoder.special_ids, *eos_ids}
        self.special_token_ids = sorted(token for token in special if token < vocab_size)
        self._by_bytes = {
            raw: token for token, raw in enumerate(self.tokens) if raw and token not in special
        }
        self._longest = max(map(len, self._by_bytes), default=1)

    def __call__(self, text: object) -> list[int]:
        """The ids of a text, whose bytes are the text's. llguidance tries bytes as well, once."""
        if not isinstance(text, str):
            raise TypeError("text is encoded, not bytes")
        raw = text.encode()
        for ids in (self._encode(text), self._encode_inside(text)):
            if ids is not None and self._bytes(ids) == raw:
                return ids
        return self._longest_first(raw)

    def _encode(self, text: str) -> list[int]:
        for token in self._encoder.special_tokens:
            text = text.replace(token, token[:1] + _BREAK + token[1:])
        return [token for piece in text.split(_BREAK) for token in self._encoder.encode(piece)]

    def _encode_inside(self, text: str) -> list[int] | None:
        """As it would be inside a longer text: SentencePiece puts a space before a beginning."""
        ids = self._encode(_BEFORE + text)
        for index, token in enumerate(ids):
            if self._bytes([token]).endswith(_BEFORE.encode()):
                return ids[index + 1 :]
        return None

    def _longest_first(self, raw: bytes) -> list[int]:
        """Where the tokenizer changes the text that it is given. Bytes that no token has are left
        out: they cannot come."""
        ids, start = [], 0
        while start < len(raw):
            ends = range(min(len(raw), start + self._longest), start, -1)
            found = next((end for end in ends if raw[start:end] in self._by_bytes), None)
            if found is not None:
                ids.append(self._by_bytes[raw[start:found]])
            start = start + 1 if found is None else found
        return ids

    def _bytes(self, ids: list[int]) -> bytes:
        known = len(self.tokens)
        return b"".join(self.tokens[token] if token < known else b"" for token in ids)


def make_vocabulary(encoder: Encoder, vocab_size: int, eos_ids: Collection[int]) -> LLTokenizer:
    """`eos_ids`, at least one, end a text that is complete."""
    tokens = TokenizerWrapper(Tokens(encoder, vocab_size, eos_ids))
    return LLTokenizer(tokens, eos_token=sorted(eos_ids))
