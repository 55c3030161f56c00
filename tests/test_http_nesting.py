"""The nesting of JSON is known from its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.fields import decode_object
from gateway.http.nesting import deeper_than
from gateway.http.sizes import nesting_of
from models.errors import UserError


def nested(levels: int, inner: str = "1") -> bytes:
    return ("[" * levels + inner + "]" * levels).encode()


@pytest.mark.parametrize("levels", [0, 1, 9, 10, 11, 500])
def test_levels_are_counted(levels: int) -> None:
    assert deeper_than(nested(levels), 10) == (levels > 10)


@pytest.mark.parametrize(
    "raw",
    [
        b'["' + b"[" * 50 + b'"]',
        b'{"a\\"' + b"{" * 50 + b'": "\\\\"}',
        b'["\\\\\\"' + b"[" * 50 + b'"]',
        b"[" + b"[],{}," * 50 + b"1]",
        json.dumps({"a": "}]" * 50 + "[{" * 50}).encode(),
    ],
)
def test_what_strings_say_and_what_lies_side_by_side_is_no_nesting(raw: bytes) -> None:
    json.loads(raw)
    assert not deeper_than(raw, 2)
    assert deeper_than(raw, 0)


def test_escapes_do_not_hide_nesting() -> None:
    for text in ('"', "\\", '\\"', '"[', "\\\\"):
        raw = json.dumps([text, json.loads(nested(20))]).encode()
        assert deeper_than(raw, 20)
        assert not deeper_than(raw, 21)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab[]{}"\\,:é'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='x[]{}"\\'), inner, max_size=3)
    ),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_it_is_what_the_decoded_text_has(value: Any, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    depth = nesting_of(value)
    assert not deeper_than(raw, depth)
    assert depth == 0 or deeper_than(raw, depth - 1)


@given(st.binary())
def test_anything_has_an_answer(raw: bytes) -> None:
    assert deeper_than(raw, 3) in (True, False)


def test_a_text_that_is_too_deep_is_not_decoded() -> None:
    deep = '{"a":' * 11 + "1" + "}" * 11
    assert decode_object(deep, 11)["a"]
    with pytest.raises(UserError, match="nested too deeply") as error:
        decode_object(deep, 10)
    assert error.value.code == "invalid_json"
    with pytest.raises(UserError, match="nested too deeply"):
        decode_object("[" * 1_000_000, 10)
