from __future__ import annotations

from pathlib import Path

import pytest

from export.training.prompts import Prompt, read_prompts
from models.errors import UserError


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_text_file_has_a_prompt_a_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text('\ufeffWho?\n\n  {"prompt": 1}  \nWhy\u2028now?\n', encoding="utf-8")
    assert [prompt.text for prompt in read_prompts(path)] == [
        "Who?",
        '{"prompt": 1}',
        "Why\u2028now?",
    ]


def test_json_lines_have_prompts_turns_or_messages(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "Who?", "id": 3}\n'
        '{"turns": ["One", "Two", "Three"], "category": "qa"}\n'
        '{"messages": [{"role": "system", "content": "Be brief."},'
        ' {"role": "user", "content": "A", "name": "x"}, {"role": "assistant", "content": "B"},'
        ' {"role": "user", "content": "C"}, {"role": "assistant", "content": "D"}]}\n'
    )
    assert read_prompts(path) == (
        Prompt((user("Who?"),)),
        Prompt((user("One"),), ("Two", "Three")),
        Prompt(
            (
                {"role": "system", "content": "Be brief."},
                user("A"),
                {"role": "assistant", "content": "B"},
                user("C"),
            )
        ),
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "needs `prompt`, `turns` or `messages`"),
        ('{"prompt": " "}', "needs `prompt`"),
        ('{"turns": ["a", ""]}', "needs `prompt`"),
        ('{"turns": []}', "needs `prompt`"),
        ('{"messages": [{"role": "user"}]}', "every message needs"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "has the role `user`"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(UserError, match=problem) as caught:
        read_prompts(path)
    assert f"{path}:2" in caught.value.message
    assert caught.value.code == "prompts_invalid"


def test_files_without_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_prompts(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UserError, match="has no prompts"):
        read_prompts(tmp_path / "empty.txt")
