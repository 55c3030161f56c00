"""Text to ids and back, whole and as a stream.

A token is worth bytes, not characters: half an emoji is a token too. So decoding here is a table
from id to bytes and one incremental UTF-8 decoder, for byte-level BPE (GPT-2, Llama 3, Qwen) and
for SentencePiece vocabularies with byte fallback (Llama 2, Gemma, Phi-3) alike. Invalid UTF-8
becomes U+FFFD per maximal subpart, as the Unicode standard recommends.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from models.errors import UserError
from models.token_bytes import TokenBytes, UnsupportedDecoderError, token_bytes_of


class Tokenizer:
    """A checkpoint's `tokenizer.json`. Immutable once loaded; safe to share between requests."""

    def __init__(self, library: tokenizers.Tokenizer, definition: Mapping[str, Any]) -> None:
        library.no_padding()
        library.no_truncation()
        self._library = library
        self._rule: TokenBytes = token_bytes_of(definition.get("decoder"))
        self._bytes: dict[int, bytes] = {}
        self._texts: dict[int, str | None] = {}
        self.special_ids = frozenset(
            token["id"] for token in definition.get("added_tokens", ()) if token["special"]
        )
        self.special_tokens: tuple[str, ...] = tuple(
            token["content"] for token in definition.get("added_tokens", ()) if token["special"]
        )
        self.vocab_size: int = library.get_vocab_size(with_added_tokens=True)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read `tokenizer.json`. Raises `UserError` (code `tokenizer_invalid`)."""
        try:
            source = Path(path).read_text(encoding="utf-8")
            definition = json.loads(source)
            return cls(tokenizers.Tokenizer.from_str(source), definition)
        except UnsupportedDecoderError as error:
            raise _invalid(path, f"cannot be streamed: {error}") from error
        except OSError as error:
            raise _invalid(path, f"cannot be read: {error.strerror}") from error
        # The library raises bare Exception for a definition that it does not understand.
        except Exception as error:
            raise _invalid(path, f"is not a valid tokenizer: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Ids of `text`. Special tokens written out in it are recognised; none are added.

        Other threads go on meanwhile: of the library's calls only those for a batch let go of the
        interpreter, and a long prompt would hold up every stream.
        """
        (encoded,) = self._library.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoded.ids
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Text of `ids`. Ids without a token (padding of the vocabulary) are worth nothing."""
        stream = StreamDecoder(self, skip_special_tokens=skip_special_tokens)
        return stream.push(ids) + stream.finish()

    def token_id(self, token: str) -> int | None:
        """The id of exactly this token, None where the vocabulary has no such token."""
        found: int | None = self._library.token_to_id(token)
        return found

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text; perhaps not whole characters."""
        known = self._bytes.get(token_id)
        if known is None:
            piece: str | None = self._library.id_to_token(token_id)
            known = b"" if piece is None else self._rule.encode(piece)
            self._bytes[token_id] = known
        return known

    def token_text(self, token_id: int) -> str | None:
        """The same as text; None where those are no whole characters."""
        try:
            return self._texts[token_id]
        except KeyError:
            try:
                text: str | None = self.token_bytes(token_id).decode()
            except UnicodeDecodeError:
                text = None
            self._texts[token_id] = text
            return text

    @property
    def leading_spaces(self) -> int:
        """How many spaces the decoder takes off the beginning of a text."""
        return self._rule.leading_spaces


class TokenTable(Protocol):
    """What a stream decoder needs of a `Tokenizer`."""

    @property
    def special_ids(self) -> AbstractSet[int]: ...

    @property
    def leading_spaces(self) -> int: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...

    def token_text(self, token_id: int, /) -> str | None: ...


class StreamDecoder:
    """Text of a growing token sequence, by whole characters.

    The concatenation of every `push` and the `finish` equals `decode` of all ids. The bytes of an
    unfinished character wait for the next token; where that makes them invalid, or the sequence
    ends, U+FFFD is given in their place. The cost of a push is that of its own tokens.
    """

    def __init__(
        self,
        tokenizer: TokenTable,
        skip_special_tokens: bool = True,
        shown: AbstractSet[int] = frozenset(),
    ) -> None:
        """`shown` are special tokens that are part of the text all the same."""
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids - shown if skip_special_tokens else frozenset[int]()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._spaces_to_strip = tokenizer.leading_spaces
        self.unfinished = False
        """Whether the bytes so far end inside a character."""

    def push_whole(self, token_id: int) -> str | None:
        """`push` of a token that is whole characters and follows such; None where it is none: then
        nothing was pushed."""
        if self.unfinished or self._spaces_to_strip or token_id in self._skipped:
            return None
        return self._tokenizer.token_text(token_id)

    def push(self, ids: Sequence[int]) -> str:
        """The text that `ids` complete."""
        token_bytes, skipped = self._tokenizer.token_bytes, self._skipped
        raw = b"".join([token_bytes(token_id) for token_id in ids if token_id not in skipped])
        text = self._strip(self._utf8.decode(raw))
        self.unfinished = self._utf8.getstate()[0] != b""
        return text

    def finish(self) -> str:
        """What is left: U+FFFD for an unfinished character, else nothing."""
        self.unfinished = False
        return self._strip(self._utf8.decode(b"", final=True))

    def _strip(self, text: str) -> str:
        if not self._spaces_to_strip or not text:
            return text
        spaces = len(text) - len(text.lstrip(" "))
        stripped = min(spaces, self._spaces_to_strip)
        self._spaces_to_strip = self._spaces_to_strip - stripped if spaces == len(text) else 0
        return text[stripped:]


def _invalid(path: Path, problem: str) -> UserError:
    name = Path(path).name
    return UserError(f"{name} {problem}.", code="tokenizer_invalid", param=name)
