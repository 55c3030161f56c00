"""Prompts that a user gives: a text file of one prompt a line, or JSON Lines.

A JSON line has `prompt` (a text), `turns` (user texts, each to be answered before the next) or
`messages` (`role` and `content`; answered is the last user message, what stands before it is
context). Other fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import UserError

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages to be answered, the last a user's, and user turns that follow upon answers."""

    messages: tuple[Message, ...]
    turns: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a model without a chat template continues."""
        return "\n".join(message["content"] for message in self.messages)


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Raises `UserError` (`prompts_invalid`) that names the file and the line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(f"{path}: cannot be read ({error})") from None
    structured = Path(path).suffix in (".jsonl", ".ndjson", ".json")
    # Not splitlines: it also splits at separators that JSON strings may contain.
    prompts = tuple(
        _structured(line, f"{path}:{number}") if structured else _user(line.strip())
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    )
    if not prompts:
        raise _invalid(f"{path}: has no prompts")
    return prompts


def _user(*turns: str) -> Prompt:
    return Prompt(({"role": "user", "content": turns[0]},), turns[1:])


def _structured(line: str, where: str) -> Prompt:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"{where}: is not valid JSON ({error})") from None
    match record:
        case {"turns": [_, *_] as turns} if all(_is_text(turn) for turn in turns):
            return _user(*turns)
        case {"prompt": prompt} if _is_text(prompt):
            return _user(prompt)
        case {"messages": [_, *_] as messages}:
            return _conversation(messages, where)
        case _:
            raise _invalid(
                f"{where}: needs `prompt`, `turns` or `messages` with text that is not empty"
            )


def _conversation(messages: Sequence[Any], where: str) -> Prompt:
    for message in messages:
        match message:
            case {"role": str(), "content": content} if _is_text(content):
                continue
        raise _invalid(f"{where}: every message needs a `role` and a `content` of text")
    kept = [{"role": m["role"], "content": m["content"]} for m in messages]
    while kept and kept[-1]["role"] != "user":
        kept.pop()
    if not kept:
        raise _invalid(f"{where}: no message has the role `user`")
    return Prompt(tuple(kept))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _invalid(problem: str) -> UserError:
    return UserError(problem + ".", code="prompts_invalid", param="prompts")
