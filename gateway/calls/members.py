"""One call as it is written: its function's name, then its arguments piece by piece."""

from __future__ import annotations

import json
from typing import Protocol

from gateway.calls.dialects import ARGUMENTS, CALL_ID
from gateway.calls.scanner import Member, ObjectScanner, ValueScanner

_ARGUMENTS = ("arguments", "parameters")
_OTHERS = ("id", "type")
_LONGEST_NAME = 128


class Scanner(Protocol):
    """Reads one call. `raw` is all that it was given, `name` that of the function once it is known,
    `done` that the call is whole, `broken` that it is none, or not to its end."""

    raw: str
    name: str | None

    @property
    def done(self) -> bool: ...

    @property
    def broken(self) -> bool: ...

    def push(self, text: str) -> tuple[str, int]:
        """More of the arguments, and how many characters of `text` belong to the call."""


class CallScanner:
    """`{"name": ..., "arguments": {...}}`, the keys in any order; `parameters` is the same.

    Arguments that come before the name wait for it. Some models write them as JSON within a string:
    these are read when they are whole.
    """

    def __init__(self) -> None:
        self.raw = ""
        self.name: str | None = None
        self.broken = False
        self._object = ObjectScanner()
        self._name = ""
        self._waiting = ""
        self._given = False
        self._quoted = False
        self._whole = False

    @property
    def done(self) -> bool:
        return self._object.done

    def push(self, text: str) -> tuple[str, int]:
        self.raw += text
        members, read = self._object.push(text)
        for member in members:
            self._take(member)
        nameless = self.done and self.name is None
        self.broken = self.broken or self._object.broken or nameless
        return self._ready(), read

    def _take(self, member: Member) -> None:
        key, raw, whole = member
        if key == "name":
            self._name += raw
            if whole:
                self._end_name()
        elif key in _ARGUMENTS:
            if not self._given:
                self._quoted = raw.startswith('"')
            self._waiting += raw
            self._given, self._whole = True, whole
        elif self.name is None and key not in _OTHERS:
            self.broken = True

    def _end_name(self) -> None:
        try:
            self.name = name_of(json.loads(self._name))
        except ValueError:
            self.name = None
        self.broken = self.broken or self.name is None

    def _ready(self) -> str:
        """What waits and may go."""
        if self.name is None:
            return ""
        if self.done and not self._given:
            return "{}"
        if self._quoted:
            if not self._whole:
                return ""
            self._waiting, self._quoted = _unquoted(self._waiting), False
        ready, self._waiting = self._waiting, ""
        return ready


class NamedCallScanner:
    """`name[ARGS]{...}`; what else stands between the name and the arguments is passed over."""

    def __init__(self) -> None:
        self.raw = ""
        self.name: str | None = None
        self._head = ""
        self._nameless = False
        self._value = ValueScanner()

    @property
    def done(self) -> bool:
        return self._value.done

    @property
    def broken(self) -> bool:
        return self._nameless or self._value.broken

    def push(self, text: str) -> tuple[str, int]:
        self.raw += text
        skipped = 0
        if self.name is None:
            head, brace, _ = text.partition("{")
            self._head += head
            self._nameless = len(self._head) > _LONGEST_NAME + len(ARGUMENTS + CALL_ID)
            if not brace or self._nameless:
                return "", len(text)
            self.name = name_of(self._head.partition("[")[0].strip())
            self._nameless = self.name is None
            skipped = len(head)
        if self._nameless:
            return "", len(text)
        read = self._value.push(text[skipped:])
        return text[skipped : skipped + read], skipped + read


def name_of(value: object) -> str | None:
    """`value`, if it can be the name of a function."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        return None
    return value


def _unquoted(raw: str) -> str:
    """The text of a JSON string; what is none stays as it is. (A lone surrogate is none: it could
    not be told.)"""
    try:
        text = str(json.loads(raw))
        text.encode()
    except ValueError:
        return raw
    return text
