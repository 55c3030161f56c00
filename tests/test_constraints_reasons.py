"""Refusals say what is wrong in words of our own, by what llguidance says."""

from __future__ import annotations

import pytest

from models.constraints.reasons import NOT_ENFORCED, TOO_LARGE, reason, running_reason
from models.constraints.source import Kind

CASES: list[tuple[Kind, str, str]] = [
    (
        "json_schema",
        'Unimplemented keys: ["if", "then"]',
        f'has "if" at "items", which {NOT_ENFORCED}',
    ),
    (
        "json_schema",
        "Invalid type: strong",
        'has the type "strong", which JSON Schema does not have',
    ),
    ("json_schema", "Unsatisfiable schema: anyOf is empty", "is one that nothing fits"),
    (
        "json_schema",
        "Unsatisfiable schema: required property 'a' is unsatisfiable",
        'requires the property "a", which nothing fits',
    ),
    (
        "json_schema",
        "Unsatisfiable schema: Regex is empty:  (And (SearchRegex /^a$/) (Regex /x/))",
        "has a pattern, format or length that rule each other out",
    ),
    ("json_schema", "Pointer '/x' does not exist", 'refers to "/x", which is not in it'),
    (
        "json_schema",
        "Resource 'http://x/y' is not present in a registry and retrieving it failed: Default",
        'refers to "http://x/y": other documents are not fetched',
    ),
    ("json_schema", "Unknown format: foo", f'has the format "foo", which {NOT_ENFORCED}'),
    (
        "json_schema",
        "regex parse error:\n    (a\n    ^\nerror: unclosed group",
        "has a pattern that cannot be used: unclosed group",
    ),
    (
        "json_schema",
        "Expected positive integer for 'minLength', got -1",
        'has a "minLength" of a wrong kind',
    ),
    ("json_schema", "NoExtensionBias\n<non-verbose/>", "is one that nothing fits"),
    ("json_schema", "panic: index out of bounds at parser.rs:7", NOT_ENFORCED),
    ("json_object", "lexer error: too many states: 50000 >= 50000", TOO_LARGE),
    (
        "regex",
        'at 1(8): invalid regex "(a" (in regex): regex parse error:\n (a\nerror: unclosed group\n',
        "is no regular expression that can be used: unclosed group",
    ),
    ("regex", "lexer precomputation failed; either increase limits.initial_lexer_fuel", TOO_LARGE),
    ("json_schema", "Parser Error: Current row has 12007 items; max is 2000; consider", TOO_LARGE),
    ("regex", "NoExtensionBias", "is one that no text fits"),
    ("grammar", "no start rule found", 'has no rule "start"'),
    (
        "grammar",
        'at 3(8): unknown name: "thing"\n   1 | start: thing\n              ^\n',
        'has the name "thing", which it does not define (line 3)',
    ),
    (
        "grammar",
        "1(13): Expected token ')', found '\\n' (at ...)\n  1 | x",
        "cannot be read (line 1)",
    ),
    (
        "grammar",
        'at 1(8): failed to compile JSON schema: Unimplemented keys: ["not"]\n   1 | start',
        f'has a schema that has "not", which {NOT_ENFORCED} (line 1)',
    ),
    (
        "grammar",
        "2(2): Expected token ':', found '[' (at \"[\" ('['))\n   1 | start: A\n"
        "   2 | A[lazy]: /x/\n        ^\n   3 | b: %json {}\n",
        'has a "[" where ":" should be: attributes, such as [lazy], stand in the definition of a'
        " rule, behind its name in lower case (line 2)",
    ),
    (
        "grammar",
        'at 1(8): unknown name: "foo"\n   1 | start: foo\n   2 | # %json, no start rule found\n',
        'has the name "foo", which it does not define (line 1)',
    ),
    (
        "grammar",
        'at 2(4): invalid regex "%json (" (in regex): regex parse error:\n    %json (\n'
        "error: unclosed group\n   1 | start: A\n",
        "has a regular expression that cannot be used: unclosed group (line 2)",
    ),
    (
        "grammar",
        'at 2(4): unknown name: "c"\n   2 | b: c  # failed to compile JSON schema: \n',
        'has the name "c", which it does not define (line 2)',
    ),
    (
        "grammar",
        'failed to parse "%json": empty json',
        'has a "%json" without a schema that can be read',
    ),
    ("grammar", "1(37): lark grammar too deeply nested (at \"(\" ('('))", f"{TOO_LARGE} (line 1)"),
    ("calls", "at 9(8): initial lexer configuration (grammar) too big (limit: 1)", TOO_LARGE),
]


@pytest.mark.parametrize(("kind", "error", "said"), CASES, ids=lambda value: str(value)[:40])
def test_in_words_of_our_own(kind: Kind, error: str, said: str) -> None:
    assert reason(kind, error, {"items": {"if": {}}}) == said


def test_what_is_repeated_is_short_and_printable() -> None:
    said = reason("json_schema", f"Unknown format: a\x00{'b' * 200}\x1b[31m")
    assert len(said) < 120
    assert said.isprintable()


def test_why_an_answer_stops() -> None:
    assert running_reason("lexer error: too many expressions constructed") == "it grew too large"
    assert "without a way" in running_reason("something else")
