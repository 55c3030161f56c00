"""What is said around thoughts and calls, and where a mark may begin."""

from __future__ import annotations

import pytest

from gateway.calls.parts import Text, Thought
from gateway.calls.spoken import Spoken, split_at


def test_whitespace_waits_for_what_follows_it() -> None:
    spoken = Spoken(fresh=False)
    spoken.add(Text, "One \n")
    assert spoken.take() == [Text("One")]
    spoken.add(Text, " two")
    assert spoken.take() == [Text(" \n two")]
    spoken.add(Text, "  ")
    assert spoken.take() == []
    spoken.release()
    assert spoken.take() == [Text("  ")]
    spoken.release()
    assert spoken.take() == []


def test_at_a_beginning_it_is_left_out() -> None:
    spoken = Spoken(fresh=True)
    spoken.add(Thought, " \n")
    spoken.add(Thought, " so ")
    assert (spoken.take(), spoken.fresh, spoken.blank) == ([Thought("so")], False, " ")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a</x>b", ("a", "</x>", "b")),
        ("a</x", ("a", "", "</x")),
        ("a</xy", ("a</xy", "", "")),
        ("a<", ("a", "", "<")),
        ("", ("", "", "")),
        ("</x></x>", ("", "</x>", "</x>")),
    ],
)
def test_a_mark_or_what_may_be_its_beginning(text: str, parts: tuple[str, str, str]) -> None:
    assert split_at("</x>", text) == parts
