"""JSON as it arrives."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.calls.scanner import ObjectScanner, ValueScanner

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(VALUES, st.integers(1, 4), st.sampled_from([None, 2]))
def test_a_value_ends_where_it_ends(value: object, size: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    scanner, read = ValueScanner(), 0
    behind = text + ", more"
    while not scanner.done:
        read += scanner.push(behind[read : read + size])
    assert read == len(text)


@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=4),
    st.integers(1, 5),
    st.sampled_from([None, 1]),
)
def test_an_object_is_told_member_by_member(
    members: dict[str, object], size: int, indent: int | None
) -> None:
    text = json.dumps(members, indent=indent, ensure_ascii=size > 2)
    scanner, found, read = ObjectScanner(), dict[str, str](), 0
    behind = text + "} more"
    while not scanner.done:
        told, count = scanner.push(behind[read : read + size])
        read += count
        for key, raw, _ in told:
            found[key] = found.get(key, "") + raw
    assert read == len(text)
    assert {key: json.loads(raw) for key, raw in found.items()} == members


@pytest.mark.parametrize(
    "text",
    ["[1]", "{1: 2}", '{"a" 1}', '{"a": ,}', '{"a": 1 2}', '{"a": 1,}', '{"a": [}', "{,}"],
)
def test_what_is_no_object_breaks(text: str) -> None:
    scanner = ObjectScanner()
    scanner.push(text)
    assert scanner.broken
    assert not scanner.done
    single = ObjectScanner()
    for character in text:
        if not single.broken:
            single.push(character)
    assert single.broken


def test_a_key_that_is_no_json_breaks_it() -> None:
    scanner = ObjectScanner()
    scanner.push(r'{"\x": 1}')
    assert scanner.broken


def test_what_came_before_the_break_is_told() -> None:
    scanner = ObjectScanner()
    members, read = scanner.push('{"a": 1, "b": [2, }')
    assert [(key, raw) for key, raw, _ in members] == [("a", "1"), ("b", "[2, ")]
    assert read == len('{"a": 1, "b": [2, ')
