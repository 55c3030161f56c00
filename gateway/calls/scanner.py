"""JSON as it arrives: where a value ends, and an object's members piece by piece."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

_BLANK = " \t\r\n"
_CLOSING = {"{": "}", "[": "]"}


class ValueScanner:
    """Finds the end of one value, which begins with the first character that is pushed.

    Takes any text whose quotes and brackets match for a value: what is inside is not looked at.
    `broken` where what arrives is none.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._open: list[str] = []
        self._quoted = False
        self._escaped = False
        self._bare = False

    def push(self, text: str) -> int:
        """How many characters of `text` belong to the value."""
        for index, character in enumerate(text):
            if self._bare and character in _BLANK + ",]}":
                self.done = True
                return index
            self._read(character)
            if self.broken:
                return index
            if self.done:
                return index + 1
        return len(text)

    def _read(self, character: str) -> None:
        if self._quoted:
            self._read_quoted(character)
        elif self._bare:
            return
        elif character == '"':
            self._quoted = True
        elif character in _CLOSING:
            self._open.append(_CLOSING[character])
        elif self._open:
            if character in "}]":
                self.broken = self._open.pop() != character
                self.done = not self._open
        elif character in _BLANK + ",:]}":
            self.broken = True
        else:
            self._bare = True

    def _read_quoted(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._quoted = False
            self.done = not self._open


class Member(NamedTuple):
    """A piece of the value of `key`, as it was written; the last one where `whole`."""

    key: str
    raw: str
    whole: bool


class ObjectScanner:
    """Reads one object, which begins with the first character that is pushed.

    `broken` where what arrives is none.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._awaited: Literal["{", "first key", "key", ":", "value", ", or }"] = "{"
        self._key = ""
        self._scanner: ValueScanner | None = None

    def push(self, text: str) -> tuple[list[Member], int]:
        """What `text` adds, and how many of its characters belong to the object."""
        members: list[Member] = []
        index = 0
        while index < len(text) and not (self.done or self.broken):
            if self._scanner is None:
                index += self._between(text[index])
            else:
                index += self._inside(self._scanner, text[index:], members)
        return members, index

    def _between(self, character: str) -> int:
        """A character outside keys and values: 1 where it is read, 0 where one of them begins."""
        awaited = self._awaited
        if character in _BLANK and awaited != "{":
            return 1
        if awaited == "value" or (character == '"' and awaited in ("key", "first key")):
            self._scanner = ValueScanner()
            self._key = self._key if awaited == "value" else ""
            return 0
        if character == "}" and awaited in ("first key", ", or }"):
            self.done = True
        elif character == "{" and awaited == "{":
            self._awaited = "first key"
        elif character == ":" and awaited == ":":
            self._awaited = "value"
        elif character == "," and awaited == ", or }":
            self._awaited = "key"
        else:
            self.broken = True
            return 0
        return 1

    def _inside(self, scanner: ValueScanner, text: str, members: list[Member]) -> int:
        read = scanner.push(text)
        self.broken = scanner.broken
        if scanner.done:
            self._scanner = None
        if self._awaited == "value":
            members.append(Member(self._key, text[:read], scanner.done))
            self._awaited = ", or }" if scanner.done else "value"
            return read
        self._key += text[:read]
        if scanner.done:
            self._end_key()
        return read

    def _end_key(self) -> None:
        try:
            self._key = str(json.loads(self._key))
        except ValueError:
            self.broken = True
        self._awaited = ":"
