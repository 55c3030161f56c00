"""What a token of a `tokenizer.json` is worth in bytes, by the file's own decoder description."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class UnsupportedDecoderError(ValueError):
    """The decoder description asks for something a stream cannot do token by token."""


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """The rule of one vocabulary.

    `alphabet` maps the characters of byte-level BPE to bytes (None for other vocabularies),
    `replacements` are applied to a piece in order, `byte_fallback` reads `<0xE2>` as a byte,
    `leading_spaces` come off the beginning of a text.
    """

    alphabet: Mapping[str, int] | None = None
    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    separator: str = ""
    leading_spaces: int = 0

    def encode(self, piece: str) -> bytes:
        if self.alphabet is not None:
            try:
                return bytes([self.alphabet[character] for character in piece])
            except KeyError:  # an added token outside the alphabet stands for itself
                return piece.encode()
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(piece)):
            return bytes([int(match[1], 16)])
        for old, new in self.replacements:
            piece = piece.replace(old, new)
        return (self.separator + piece).encode()


def token_bytes_of(decoder: Mapping[str, Any] | None) -> TokenBytes:
    """The rule that a `tokenizer.json` describes under `decoder`.

    Raises `UnsupportedDecoderError` for steps that look beyond one token (WordPiece, CTC, ...).
    """
    if decoder is None:  # pieces are joined by spaces
        return TokenBytes(separator=" ", leading_spaces=1)
    steps = _flatten(decoder)
    if any(step["type"] == "ByteLevel" for step in steps):
        return TokenBytes(alphabet=byte_alphabet())
    replacements: list[tuple[str, str]] = []
    byte_fallback, leading_spaces = False, 0
    for step in steps:
        match step:
            case {"type": "ByteFallback"}:
                byte_fallback = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                replacements.append((old, new))
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0}:
                leading_spaces = start
            case {"type": "Metaspace", "replacement": str(mark)}:
                replacements.append((mark, " "))
                leading_spaces = 0 if step.get("prepend_scheme") == "never" else 1
            case _:
                raise UnsupportedDecoderError(f"its decoder has the step {step}")
    return TokenBytes(
        replacements=tuple(replacements),
        byte_fallback=byte_fallback,
        leading_spaces=leading_spaces,
    )


def _flatten(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for child in decoder["decoders"] for step in _flatten(child)]


def byte_alphabet() -> dict[str, int]:
    """The characters that byte-level BPE writes bytes with.

    Printable Latin-1 stands for itself; the other 68 bytes take the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update((chr(0x100 + index), byte) for index, byte in enumerate(others))
    return alphabet
