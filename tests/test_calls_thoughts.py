"""Tokens of thoughts are counted, the marks among them."""

from __future__ import annotations

import pytest

from gateway.calls.thoughts import ThoughtTokens
from models.tokenizer import StreamDecoder
from tests.fake_engine import CharacterTokenizer


@pytest.mark.parametrize(
    ("text", "thinking", "count"),
    [
        ("<think>ab</think>cd", False, len("<think>ab</think>")),
        ("\n<think>ab", False, len("\n<think>ab")),
        ("ab</think>cd", True, len("ab</think>")),
        ("abc", True, 3),
        ("abc", False, 0),
        ("", False, 0),
        ("<th", False, 0),
        ("a <think>b</think>", False, 0),
        ("</think>", False, 0),
    ],
)
def test_counts(text: str, thinking: bool, count: int) -> None:
    whole = ThoughtTokens(StreamDecoder(CharacterTokenizer()), thinking=thinking)
    whole.add(map(ord, text))
    assert whole.finish() == count
    single = ThoughtTokens(StreamDecoder(CharacterTokenizer()), thinking=thinking)
    for character in text:
        single.add([ord(character)])
    assert single.finish() == count
