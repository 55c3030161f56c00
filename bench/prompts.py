"""Prompts as JSON lines in Spec-Bench form: `question_id`, `category`, `turns`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from models.errors import UserError

BUILTIN = "prompts_repeating.jsonl"
REPEATING_CATEGORIES = frozenset({"edit", "extract", "copy"})
"""Categories whose answers are known to repeat their prompt."""

_CHAT = "chat"
_TASKS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            "writing",
            "roleplay",
            "reasoning",
            "math",
            "coding",
            "extraction",
            "stem",
            "humanities",
        ),
        _CHAT,
    )
)


@dataclass(frozen=True, slots=True)
class Question:
    """One conversation: what the user says, turn by turn."""

    id: str
    category: str
    turns: tuple[str, ...]

    @property
    def task(self) -> str:
        """Spec-Bench's categories of conversation are one task (arXiv 2401.07851); others are
        their own."""
        return _TASKS.get(self.category, self.category)


def by_category(question: Question) -> str:
    return question.category


def by_task(question: Question) -> str:
    return question.task


def load(path: Path) -> list[Question]:
    """Read prompts. Only `turns` must be there: an id is the line's number by default.

    Raises `UserError` (`prompts_invalid`) that names the file and the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        _refuse(f"{path}: cannot be read ({error})")
    return parse(text, str(path))


def builtin() -> list[Question]:
    """Prompts whose answers mostly repeat them: edits, extracts, copies."""
    text = resources.files("bench").joinpath(BUILTIN).read_text(encoding="utf-8")
    return parse(text, BUILTIN)


def parse(text: str, name: str) -> list[Question]:
    # Not splitlines: it also splits at separators that JSON strings may contain.
    lines = enumerate(text.split("\n"), start=1)
    questions = [
        _question(line, f"{name}:{number}", number) for number, line in lines if line.strip()
    ]
    if not questions:
        _refuse(f"{name}: has no prompts")
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            _refuse(f"{name}: question_id {question.id} occurs twice")
        seen.add(question.id)
    return questions


def _question(line: str, where: str, number: int) -> Question:
    try:
        record: Any = json.loads(line)
        json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        _refuse(f"{where}: is not valid JSON ({error})")
    if not isinstance(record, dict):
        _refuse(f"{where}: is not a JSON object")
    turns = record.get("turns")
    if not isinstance(turns, list) or not turns:
        _refuse(f"{where}: turns must be a list of at least one text")
    if not all(isinstance(turn, str) and turn.strip() for turn in turns):
        _refuse(f"{where}: every turn must be a text that is not empty")
    category = record.get("category", "all")
    if not isinstance(category, str):
        _refuse(f"{where}: category must be a text")
    question_id = record.get("question_id", number)
    if not isinstance(question_id, int | str):
        _refuse(f"{where}: question_id must be a number or a text")
    return Question(id=str(question_id), category=category, turns=tuple(turns))


def spread(
    questions: Sequence[Question], limit: int, kind: Callable[[Question], str] = by_category
) -> list[Question]:
    """At most `limit` questions, as evenly over their kinds as they allow, in file order.

    Within a kind they are taken at even distances; the same input gives the same choice.
    """
    groups: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        groups.setdefault(kind(question), []).append(index)
    shares = dict.fromkeys(groups, 0)
    for _ in range(min(limit, len(questions))):
        open_groups = [name for name, members in groups.items() if shares[name] < len(members)]
        shares[min(open_groups, key=lambda name: shares[name])] += 1
    chosen = [
        members[position * len(members) // shares[name]]
        for name, members in groups.items()
        for position in range(shares[name])
    ]
    return [questions[index] for index in sorted(chosen)]


def _refuse(problem: str) -> NoReturn:
    raise UserError(problem + ".", code="prompts_invalid", param="prompts")
