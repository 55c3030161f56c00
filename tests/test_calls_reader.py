"""What models say, think and call, read as it arrives, however it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.calls.dialects import Manner
from gateway.calls.parts import CallBegun, CallDelta, CallEnded, Text
from gateway.calls.reader import AnswerReader
from tests.calls_support import HERMES, LLAMA3, MISTRAL, NAMED, Read, read

THINKING = Manner("hermes", told=True, thinks=True)
CALL = '{"name": "get_weather", "arguments": {"town": "Bonn"}}'
WEATHER = ("call", "get_weather", '{"town": "Bonn"}')
PARAMETERS = CALL.replace("arguments", "parameters")

CASES: list[tuple[str, Manner, str, Read]] = [
    ("text", HERMES, "Hello\n there. ", [("text", "Hello\n there. ")]),
    ("nothing", HERMES, "", []),
    ("call", HERMES, f"<tool_call>\n{CALL}\n</tool_call>", [WEATHER]),
    ("compact", HERMES, f"<tool_call>{CALL}</tool_call>", [WEATHER]),
    (
        "text around calls",
        HERMES,
        f"Let me see.\n\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{CALL}</tool_call>\n Now",
        [("text", "Let me see."), WEATHER, WEATHER, ("text", "Now")],
    ),
    (
        "keys in another order",
        HERMES,
        '<tool_call>{"arguments": {"a": [1, "}"]}, "id": 7, "name": "f"}</tool_call>',
        [("call", "f", '{"a": [1, "}"]}')],
    ),
    (
        "arguments within a string",
        HERMES,
        r'<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>',
        [("call", "f", '{"a": 1}')],
    ),
    ("no arguments", HERMES, '<tool_call>{"name": "f"}</tool_call>', [("call", "f", "{}")]),
    ("not closed", HERMES, f"<tool_call>\n{CALL}", [WEATHER]),
    (
        "cut in its arguments",
        HERMES,
        '<tool_call>\n{"name": "f", "arguments": {"a": [1, ',
        [("cut", "f", '{"a": [1, ')],
    ),
    (
        "cut before its name",
        HERMES,
        'So: <tool_call>\n{"name": "ge',
        [("text", 'So: <tool_call>\n{"name": "ge')],
    ),
    (
        "a mark in a text",
        HERMES,
        "Write <tool_call> and </tool_call> around it.",
        [("text", "Write <tool_call> and </tool_call> around it.")],
    ),
    ("half a mark", HERMES, "a < b and <tool_ca", [("text", "a < b and <tool_ca")]),
    (
        "no call",
        HERMES,
        '<tool_call>{"city": "Bonn"}</tool_call> so',
        [("text", '<tool_call>{"city": "Bonn"}</tool_call> so')],
    ),
    (
        "broken in its arguments",
        HERMES,
        '<tool_call>{"name": "f", "arguments": {"a": ]}</tool_call>Sorry.',
        [("cut", "f", '{"a": '), ("text", "Sorry.")],
    ),
    ("bare", LLAMA3, PARAMETERS, [WEATHER]),
    ("with its mark", LLAMA3, f"<|python_tag|>{PARAMETERS}", [WEATHER]),
    ("several", LLAMA3, f"{PARAMETERS}; {PARAMETERS}\n{PARAMETERS}", [WEATHER] * 3),
    (
        "with a type",
        LLAMA3,
        '{"type": "function", "name": "f", "parameters": {}}',
        [("call", "f", "{}")],
    ),
    ("JSON", LLAMA3, '{"town": {"name": "Bonn"}}', [("text", '{"town": {"name": "Bonn"}}')]),
    ("text with braces", LLAMA3, f"It is {CALL}", [("text", f"It is {CALL}")]),
    ("a list", MISTRAL, f"[TOOL_CALLS][{CALL}, {CALL}]", [WEATHER, WEATHER]),
    ("a list with blanks", MISTRAL, f"Ok. [TOOL_CALLS] [ {CALL} ] ", [("text", "Ok."), WEATHER]),
    ("one without a list", MISTRAL, f"[TOOL_CALLS]{CALL}", [WEATHER]),
    ("named", NAMED, '[TOOL_CALLS]get_weather[ARGS]{"town": "Bonn"}', [WEATHER]),
    ("named, twice", NAMED, '[TOOL_CALLS]get_weather[ARGS]{"town": "Bonn"}' * 2, [WEATHER] * 2),
    (
        "named with an id",
        NAMED,
        '[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"town": "Bonn"}',
        [WEATHER],
    ),
    ("named without a mark", NAMED, '[TOOL_CALLS]get_weather{"town": "Bonn"}', [WEATHER]),
    (
        "thought",
        THINKING,
        "<think>\nHm, two\n\nlines.\n</think>\n\nYes.",
        [("thought", "Hm, two\n\nlines."), ("text", "Yes.")],
    ),
    ("no thought", THINKING, "<think>\n\n</think>\n\nYes.", [("text", "Yes.")]),
    ("thinking to the end", THINKING, "<think>Hm </thi", [("thought", "Hm </thi")]),
    ("a thought later", THINKING, "No <think>x</think>", [("text", "No <think>x</think>")]),
    (
        "thought and call",
        THINKING,
        f"<think>Hm.</think>\n<tool_call>\n{CALL}\n</tool_call>",
        [("thought", "Hm."), WEATHER],
    ),
]


@pytest.mark.parametrize(
    ("manner", "text", "expected"),
    [pytest.param(*case[1:], id=f"{case[1].dialect} {case[0]}") for case in CASES],
)
def test_read_alike_whole_and_in_pieces_of_every_size(
    manner: Manner, text: str, expected: Read
) -> None:
    assert read(manner, [text]) == expected
    for size in range(1, min(len(text), 12) + 1):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert read(manner, pieces) == expected, size


MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "[", "]")
PIECES = st.sampled_from([*MARKS, "<|python_tag|>", CALL, CALL[:20], CALL[20:], "{", "}", '"'])


@given(st.lists(PIECES | st.text(max_size=3), max_size=8), st.integers(1, 5))
def test_anything_is_read_alike_in_pieces(texts: list[str], size: int) -> None:
    text = "".join(texts)
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    for manner in (HERMES, LLAMA3, MISTRAL, NAMED, THINKING):
        whole, cut = read(manner, [text]), read(manner, pieces)
        assert [part for part in cut if part[0] != "cut"] == [
            part for part in whole if part[0] != "cut"
        ]


def test_without_functions_nothing_is_a_call() -> None:
    text = f"<tool_call>\n{CALL}\n</tool_call>"
    assert read(HERMES, [text], calls=False) == [("text", text)]
    assert read(LLAMA3, [PARAMETERS], calls=False) == [("text", PARAMETERS)]
    assert read(THINKING, [f"<think>x</think>{text}"], calls=False) == [
        ("thought", "x"),
        ("text", text),
    ]


def test_a_prompt_may_end_inside_a_thought() -> None:
    said = read(THINKING, ["Hm.", "\n</th", "ink>\nYes"], thinking=True)
    assert said == [("thought", "Hm."), ("text", "Yes")]


def test_what_can_be_told_is_told_at_once() -> None:
    reader = AnswerReader(HERMES, calls=True)
    assert reader.push("Hello") == [Text("Hello")]
    assert reader.push(" there <") == [Text(" there")]
    assert reader.push("b> ") == [Text(" <b>")]
    assert reader.push("<tool_call>\n") == []
    assert reader.push('{"name": "f", ') == [CallBegun(0, reader_id(reader), "f")]
    assert reader.push('"arguments": {"a"') == [CallDelta(0, '{"a"')]
    assert reader.push(": 1") == [CallDelta(0, ": 1")]
    assert reader.push("}}\n") == [CallDelta(0, "}"), CallEnded(0)]
    assert reader.finish() == []
    assert reader.calls == 1


def reader_id(reader: AnswerReader) -> object:
    """Equal to whatever id a call has, which begins as OpenAI's do."""

    class Anything:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, str) and other.startswith("call_")

    return Anything()


def test_ids_are_what_templates_take() -> None:
    (begun, *_) = AnswerReader(MISTRAL, calls=True).push(f"[TOOL_CALLS][{CALL}]")
    assert isinstance(begun, CallBegun)
    assert len(begun.id) == 9
    assert begun.id.isalnum()


SINGLE: list[tuple[str, Manner, str, Read, int]] = [
    ("behind its mark", HERMES, f"So.\n<tool_call>{CALL}</tool_call>\nNow", [WEATHER], 4),
    ("no second one", HERMES, f"<tool_call>{CALL}</tool_call>" * 2, [WEATHER], -1),
    ("none without a mark", HERMES, f"<tool_call>{CALL}\n<tool_call>{CALL}", [WEATHER], -1),
    ("nor text", HERMES, f"<tool_call>{CALL} Now", [WEATHER], 3),
    ("llama", LLAMA3, f"{PARAMETERS}; {PARAMETERS}", [WEATHER], -1),
    ("llama's mark", LLAMA3, f"<|python_tag|>{PARAMETERS} so", [WEATHER], 3),
    ("a list", MISTRAL, f"[TOOL_CALLS] [{CALL}, {CALL}]", [WEATHER], -1),
    ("a list of one", MISTRAL, f"[TOOL_CALLS] [{CALL}] so", [WEATHER], 3),
    (
        "named",
        NAMED,
        '[TOOL_CALLS]get_weather[ARGS]{"town": "Bonn"}[TOOL_CALLS]f[ARGS]{}',
        [WEATHER],
        -1,
    ),
    (
        "broken off",
        HERMES,
        f'<tool_call>{{"name": "f", "arguments": {{"a": ]}}</tool_call><tool_call>{CALL}',
        [("cut", "f", '{"a": ')],
        -1,
    ),
]


@pytest.mark.parametrize(("manner", "text", "expected", "spare"), [case[1:] for case in SINGLE])
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_behind_an_only_call_the_answer_is_over(
    manner: Manner, text: str, expected: Read, spare: int, size: int
) -> None:
    before: Read = [("text", "So.")] if text.startswith("So.") else []
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert read(manner, pieces, single=True) == [*before, *expected]
    assert len(read(manner, pieces)) > len(expected), "without that there is more"
    reader = AnswerReader(manner, calls=True, single=True)
    reader.push(text)
    assert reader.spare == spare or (spare < 0 and (reader.spare or 0) > 0)


def test_an_answer_without_a_whole_call_is_not_over() -> None:
    for text in ("Well.", "<tool_call> no", f"<tool_call>{CALL}", f"<tool_call>{CALL}\n</tool"):
        reader = AnswerReader(HERMES, calls=True, single=True)
        reader.push(text)
        assert reader.spare is None
