"""Constraints are compiled, or refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from llguidance import LLMatcher

from models.constraints.compiler import GrammarCompiler
from models.constraints.source import MOST_CHARACTERS, MOST_RULES, ConstraintSource
from models.errors import UserError
from models.package import Package
from models.tokenizer import Tokenizer
from tests.constraints_support import (
    RECORD,
    compiler_of,
    json_schema,
    lark,
    regex,
    tokenizer_of,
    tokens_of,
)

OBJECT = ConstraintSource("json_object")
ENDLESS = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}},
            "required": ["next"],
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.fixture(scope="module")
def compiler(package: Package) -> GrammarCompiler:
    return compiler_of(package)


@pytest.fixture(scope="module")
def tokenizer(package: Package) -> Tokenizer:
    return tokenizer_of(package)


@pytest.mark.parametrize(
    ("source", "fits", "does_not"),
    [
        (OBJECT, ["{}", '{"a": [1, {"b": null}], "c": "d"}'], ["[]", "1", " {}", '{"a":1}']),
        (
            json_schema(RECORD),
            ['{"name": "Bo", "age": 7, "colour": "light green"}'],
            ['{"age": 7, "name": "Bo", "colour": "red"}', '{"name": "Barbara"', '{"name": 1'],
        ),
        (
            json_schema({**RECORD, "x-guidance": {"whitespace_flexible": True}}),
            ['{\n "name": "Bo" , "age": 7, "colour": "red"}'],
            ['[{"name"'],
        ),
        (regex("(ab|c)+[0-9]{2}"), ["ab12", "cab00"], ["b", "ab1x", "ab123"]),
        (lark('start: "yes" | "no" NUMBER\nNUMBER: /[0-9]+/'), ["yes", "no42"], ["maybe", "yes4"]),
        (lark("%ignore / /\nstart: (WORD)+\nWORD: /[a-z]+/"), ["the other"], ["The"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_texts_of_a_form_and_others(
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
    source: ConstraintSource,
    fits: list[str],
    does_not: list[str],
) -> None:
    grammar = compiler.compile(source)
    for text in fits:
        tokens = tokens_of(grammar.guide(source), tokenizer, text)
        assert tokens is not None, text
        assert tokenizer.decode(tokens) == text
    for text in does_not:
        assert tokens_of(grammar.guide(source), tokenizer, text) is None, text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (regex("(a"), "is no regular expression that can be used: unclosed group"),
        (lark("start: nothing_like_it"), 'has the name "nothing_like_it", .* \\(line 1\\)'),
        (lark('{"grammars": []}'), "cannot be read \\(line 1\\)"),
        (lark(""), 'has no rule "start"'),
        (json_schema({"type": "strong"}), 'has the type "strong", which JSON Schema'),
        (
            json_schema({"properties": {"a": {"propertyNames": {"maxLength": 2}}}}),
            'has "propertyNames" at "properties.a", which cannot be enforced',
        ),
        (json_schema({"allOf": [{"type": "string"}, {"type": "null"}]}), "nothing fits it"),
        (json_schema(ENDLESS), "refers to itself without an end"),
        (
            json_schema({"type": "object", "properties": {f"p{n}": {} for n in range(3000)}}),
            "is too large",
        ),
        (
            json_schema({"x-guidance": {"lenient": True}, "propertyNames": {"maxLength": 2}}),
            "whitespace_flexible, a boolean, alone",
        ),
        (json_schema({"x-guidance": {"key_separator": "="}}), "whitespace_flexible"),
        (json_schema({"x-guidance": {"whitespace_flexible": 1}}), "whitespace_flexible"),
        (json_schema({"x-guidance": 5}), "whitespace_flexible"),
        (ConstraintSource("json_schema", "[" * 200 + "]" * 200), "is not a JSON schema"),
        (ConstraintSource("json_schema", "{"), "is not a JSON schema"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_wrong_with_it_is_said(
    compiler: GrammarCompiler, source: ConstraintSource, said: str
) -> None:
    with pytest.raises(UserError, match=said) as caught:
        compiler.compile(source)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "response_format")
    assert caught.value.message.startswith("response_format ")
    assert len(caught.value.message) < 200
    assert not re.search("[<>\n]|llguidance|lexer|fuel", caught.value.message)


@pytest.mark.parametrize(
    "source",
    [
        ConstraintSource("regex", "a" * (MOST_CHARACTERS["regex"] + 1), "text.format.regex"),
        ConstraintSource("grammar", "a:" * (MOST_RULES + 1), "text.format.grammar"),
        ConstraintSource("json_schema", " " * MOST_CHARACTERS["json_schema"] + "{}", "schema"),
    ],
    ids=["regex", "rules", "schema"],
)
def test_what_is_too_large_is_not_compiled(
    compiler: GrammarCompiler, source: ConstraintSource
) -> None:
    with pytest.raises(UserError) as caught:
        compiler.compile(source)
    assert (caught.value.code, caught.value.param) == ("unsupported_value", source.param)


def test_rules_as_deep_as_may_be(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    """Compiled one inside the other, in a thread of the usual size."""
    rules = [f"r{index}: r{index + 1}" for index in range(MOST_RULES - 2)]
    source = lark("\n".join(["start: r0", *rules, f'r{MOST_RULES - 2}: "end"']))
    guide = compiler.compile(source).guide(source)
    assert tokens_of(guide, tokenizer, "end") is not None
    assert guide.complete


def test_without_an_end_of_sequence_there_is_no_form(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError) as caught:
        GrammarCompiler(tokenizer, tokenizer.vocab_size, ()).compile(OBJECT)
    assert caught.value.code == "unsupported_value"
    GrammarCompiler(tokenizer, tokenizer.vocab_size, ()).prepare()


def test_the_same_source_is_the_same_whoever_asks() -> None:
    assert regex("a") == ConstraintSource("regex", "a", "text.format.regex")
    assert hash(regex("a")) == hash(ConstraintSource("regex", "a", "text.format.regex"))
    assert regex("a") != ConstraintSource("grammar", "a")


def test_which_of_several_schemas_is_wrong_is_said(compiler: GrammarCompiler) -> None:
    good, bad = {"type": "object"}, {"type": "object", "uniqueItems": True}
    grammar = "start: a b\na: %json {}\nb: %json {}"
    texts = [json_schema(good, "tools[0].parameters"), json_schema(bad, "tools[1].parameters")]
    text = grammar.format(*(source.text for source in texts))
    with pytest.raises(UserError, match="uniqueItems") as caught:
        compiler.compile(ConstraintSource("calls", text, "tools", tuple(texts)))
    assert caught.value.param == "tools[1].parameters"
    endless = json_schema(ENDLESS, "tools[1].parameters")
    with pytest.raises(UserError, match="without an end") as caught:
        compiler.compile(ConstraintSource("calls", text, "tools", (texts[0], endless)))
    assert caught.value.param == "tools[1].parameters"


TOO_LARGE = {"type": "object", "properties": {f"p{n}": {} for n in range(3000)}}


def test_a_schema_that_is_too_large_far_from_the_beginning_is_found(
    compiler: GrammarCompiler,
) -> None:
    """Any text may come before it; and its name is longer than the tokens that are tried."""
    value = {"type": "object", "properties": {"a name of quite some tokens": TOO_LARGE}}
    schema = json_schema(
        {**value, "required": list(value["properties"]), "additionalProperties": False},
        "tools[1].parameters",
    )
    with pytest.raises(UserError, match="is too large") as caught:
        compiler.compile(schema)
    assert caught.value.param == "tools[1].parameters"
    small = json_schema({"type": "object"}, "tools[0].parameters")
    text = "start: TEXT? | said (a | b)\nsaid[lazy]: /(.|\\n)*!/\nTEXT: /[^!]*/"
    text += f"\na: %json {small.text}"
    calls = ConstraintSource("calls", f"{text}\nb: %json {schema.text}", "tools", (small, schema))
    with pytest.raises(UserError, match="is too large") as caught:
        compiler.compile(calls)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "tools[1].parameters")
    compiler.compile(ConstraintSource("calls", text.replace("| b", ""), "tools", (small,)))


def test_a_fault_of_the_compilers_own_is_a_refusal(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panic in Rust is no `Exception`, and its words are no business of a client's."""

    class PanicException(BaseException):
        pass

    def panic(*arguments: Any, **options: Any) -> LLMatcher:
        raise PanicException("index out of bounds: the len is 3 but the index is 7")

    monkeypatch.setattr("models.constraints.compiler.LLMatcher", Panicking(panic))
    with pytest.raises(UserError) as caught:
        compiler.compile(regex("a"))
    assert caught.value.message == "response_format cannot be enforced."


class Panicking:
    """`LLMatcher`, but for making one."""

    grammar_from_regex = staticmethod(LLMatcher.grammar_from_regex)

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._make(*arguments, **options)
