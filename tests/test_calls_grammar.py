"""Answers that must call a function: their grammars take what readers read, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.calls.dialects import Manner
from gateway.calls.grammar import MOST_CALLS, calls_grammar, text_grammar
from gateway.calls.tools import Tool
from models.constraints.compiler import GrammarCompiler
from models.constraints.source import ConstraintSource
from models.package import Package
from models.tokenizer import Tokenizer
from tests.calls_support import HERMES, LLAMA3, MISTRAL, NAMED, NOTHING, WEATHER, read
from tests.constraints_support import compiler_of, tokenizer_of, tokens_of

TOOLS = (WEATHER, NOTHING)
BONN = ("call", "get_weather", '{"town": "Bonn"}')
STOP = ("call", "stop", "{}")
ONE = {
    HERMES: '<tool_call>\n{"name": "get_weather", "arguments": {"town": "Bonn"}}\n</tool_call>',
    LLAMA3: '{"name": "get_weather", "parameters": {"town": "Bonn"}}',
    MISTRAL: '[TOOL_CALLS][{"name": "get_weather", "arguments": {"town": "Bonn"}}]',
    NAMED: '[TOOL_CALLS]get_weather[ARGS]{"town": "Bonn"}',
}
TWO = {
    HERMES: ONE[HERMES] + '\n<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
    LLAMA3: ONE[LLAMA3] + ';{"name": "stop", "parameters": {}}',
    MISTRAL: ONE[MISTRAL][:-1] + ', {"name": "stop", "arguments": {}}]',
    NAMED: ONE[NAMED] + "[TOOL_CALLS]stop[ARGS]{}",
}


@pytest.fixture(scope="module")
def compiler(package: Package) -> GrammarCompiler:
    return compiler_of(package)


@pytest.fixture(scope="module")
def tokenizer(package: Package) -> Tokenizer:
    return tokenizer_of(package)


def fits(
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
    manner: Manner,
    text: str,
    tools: tuple[Tool, ...] = TOOLS,
    **options: Any,
) -> bool:
    """Whether `text` is taken as calls of a manner, and may end there."""
    grammar = calls_grammar(manner, tools, {}, **{"several": True, **options})
    return takes(compiler, tokenizer, grammar, text)


def takes(compiler: GrammarCompiler, tokenizer: Tokenizer, grammar: str, text: str) -> bool:
    """Whether the grammar takes `text`, which may end there."""
    source = ConstraintSource("calls", grammar, "tools")
    guide = compiler.compile(source).guide(source)
    if tokens_of(guide, tokenizer, text) is None:
        return False
    return guide.complete or guide.allows(guide.ending)


@pytest.mark.parametrize("manner", list(ONE), ids=lambda manner: f"{manner.dialect}")
def test_there_is_an_end_of_calls(
    compiler: GrammarCompiler, tokenizer: Tokenizer, manner: Manner
) -> None:
    more = TWO[manner].removeprefix(ONE[manner])
    if manner is MISTRAL:
        more = TWO[manner][len(ONE[manner]) - 1 : -1]
    begun = ONE[manner][:-1] if manner is MISTRAL else ONE[manner]
    end = "]" if manner is MISTRAL else ""
    assert fits(compiler, tokenizer, manner, begun + more * (MOST_CALLS - 1) + end)
    assert not fits(compiler, tokenizer, manner, begun + more * MOST_CALLS + end)


@pytest.mark.parametrize("manner", list(ONE), ids=lambda manner: f"{manner.dialect}")
def test_calls_as_the_model_writes_them(
    compiler: GrammarCompiler, tokenizer: Tokenizer, manner: Manner
) -> None:
    assert read(manner, [ONE[manner]]) == [BONN]
    assert read(manner, [TWO[manner]]) == [BONN, STOP]
    assert fits(compiler, tokenizer, manner, ONE[manner])
    assert fits(compiler, tokenizer, manner, TWO[manner])
    assert fits(compiler, tokenizer, manner, ONE[manner], several=False)
    assert not fits(compiler, tokenizer, manner, TWO[manner], several=False)
    assert not fits(compiler, tokenizer, manner, ONE[manner], tools=(NOTHING,))
    assert not fits(compiler, tokenizer, manner, "The weather is fine.")
    assert not fits(compiler, tokenizer, manner, ONE[manner].replace("Bonn", "Düsseldorf"))


@pytest.mark.parametrize("manner", list(ONE), ids=lambda manner: f"{manner.dialect}")
def test_an_answer_of_a_form_may_come_instead(
    compiler: GrammarCompiler, tokenizer: Tokenizer, manner: Manner
) -> None:
    answer = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    options = {"answer": {**answer, "additionalProperties": False}}
    # Which of the two it is shows in the first character: Llama's calls have their mark.
    call = f"<|python_tag|>{ONE[manner]}" if manner == LLAMA3 else ONE[manner]
    assert read(manner, [call]) == [BONN]
    assert fits(compiler, tokenizer, manner, '{"a": null}', **options)
    assert fits(compiler, tokenizer, manner, call, **options)
    assert not fits(compiler, tokenizer, manner, '{"a": 1}', **options)


def test_references_in_parameters_stay_their_own(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    parameters = {
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/place"}},
        "required": ["place"],
        "$defs": {"place": {"enum": ["here", "there"]}},
    }
    tools = (Tool("one", None, parameters), Tool("two", None, parameters))
    text = '<tool_call>\n{"name": "two", "arguments": {"place": "there"}}\n</tool_call>'
    assert fits(compiler, tokenizer, HERMES, text, tools=tools)


def test_marks_that_are_special_tokens_are_these_tokens(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    (special,) = tokenizer.special_ids - {*compiler._eos_ids, 0}
    grammar = calls_grammar(NAMED, (NOTHING,), {"[TOOL_CALLS]": special}, several=False)
    source = ConstraintSource("calls", grammar, "tools")
    guide = compiler.compile(source).guide(source)
    assert guide.only() == special
    guide.commit([special])
    assert tokens_of(guide, tokenizer, "stop[ARGS]{}") is not None
    assert guide.complete


def test_a_schema_cannot_say_that_it_need_not_be_enforced() -> None:
    schema = {"x-guidance": {"lenient": True, "whitespace_flexible": True}, "type": "object"}
    grammar = calls_grammar(HERMES, (Tool("f", None, schema),), {}, several=False)
    assert '"lenient": false' in grammar
    assert '"whitespace_flexible": true' in grammar
    odd = Tool("f", None, {"x-guidance": {"key_separator": "="}})
    assert '"key_separator": ": "' in calls_grammar(HERMES, (odd,), {}, several=False)
    odd = Tool("f", None, {"x-guidance": 7})
    assert '"lenient": false' in calls_grammar(HERMES, (odd,), {}, several=False)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("It rains.", True),
        ("a < b <tool> <tool_cal", True),
        (ONE[HERMES], True),
        (f"Let me see.\n{TWO[HERMES]}", True),
        (f"{ONE[HERMES]} And more.", False),
        ('<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "get_weather", "arguments": {"town": 1}}\n</tool_call>', False),
        ("It is written <tool_call>", False),
    ],
)
def test_text_is_free_up_to_the_first_call(
    compiler: GrammarCompiler, tokenizer: Tokenizer, text: str, taken: bool
) -> None:
    grammar = text_grammar(HERMES, TOOLS, {}, several=True)
    assert takes(compiler, tokenizer, grammar, text) is taken


def test_text_or_one_call_where_several_may_not_be(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    grammar = text_grammar(HERMES, TOOLS, {}, several=False)
    assert takes(compiler, tokenizer, grammar, f"Hm. {ONE[HERMES]}")
    assert not takes(compiler, tokenizer, grammar, TWO[HERMES])


def test_an_answer_may_be_nothing_at_all(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    source = ConstraintSource("calls", text_grammar(HERMES, TOOLS, {}, several=True), "tools")
    guide = compiler.compile(source).guide(source)
    assert guide.allows(guide.ending)


def test_text_before_calls_whose_marks_are_special_tokens() -> None:
    grammar = text_grammar(HERMES, (NOTHING,), {"<tool_call>": 7, "</tool_call>": 8}, several=True)
    assert 'start: TEXT? | said body ("\\n" <[7]> body){0,15}' in grammar
    assert "said: TEXT? <[7]>\n" in grammar
    assert grammar.endswith("TEXT: /(.|\\n)*/\n")
