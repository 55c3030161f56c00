"""A lenient guide follows its grammar as far as that goes, and lets go there."""

from __future__ import annotations

import pytest

from models.constraints.compiler import GrammarCompiler
from models.constraints.lenient import LenientGuide
from models.constraints.source import ConstraintSource
from models.errors import UserError
from models.package import Package
from models.tokenizer import Tokenizer
from tests.constraints_support import compiler_of, json_schema, regex, tokenizer_of, tokens_of

TOO_LARGE = {"type": "object", "properties": {f"p{n}": {} for n in range(3000)}}
DEEP = {
    "type": "object",
    "properties": {"first": {"type": "string", "pattern": "^[a-z]{12}$"}, "then": TOO_LARGE},
    "required": ["first", "then"],
    "additionalProperties": False,
}
"""Behind its first value it grows too large: its first tokens do not show it."""
BEFORE = '{"first": "abcdefghijkl", "then": {"'


@pytest.fixture(scope="module")
def compiler(package: Package) -> GrammarCompiler:
    return compiler_of(package)


@pytest.fixture(scope="module")
def tokenizer(package: Package) -> Tokenizer:
    return tokenizer_of(package)


def lenient_of(compiler: GrammarCompiler, source: ConstraintSource) -> LenientGuide:
    return LenientGuide(compiler.compile(source), source)


def lost_ahead(guide: LenientGuide, tokens: list[int]) -> list[int]:
    """The first of `tokens` behind which the grammar is lost, looking ahead."""
    for count in range(len(tokens) + 1):
        if guide.allowed(tokens[:count]).flags.all():
            return tokens[:count]
    raise AssertionError("the grammar is followed to the end")


def test_while_the_grammar_holds_it_says_the_same(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    source = regex("(yes|no) in the end")
    strict, lenient = compiler.compile(source).guide(source), lenient_of(compiler, source)
    for token in tokenizer.encode("yes in the end"):
        assert strict.only() == lenient.only()
        assert (strict.allowed().flags == lenient.allowed().flags).all()
        assert strict.forced() == lenient.forced()
        assert strict.allows(token) == lenient.allows(token)
        assert strict.valid([token]) == lenient.valid([token]) == 1
        assert lenient.branch().after(token) is not None
        strict.commit([token])
        lenient.commit([token])
    assert strict.complete
    assert lenient.complete


def test_it_lets_go_where_the_strict_one_ends_the_answer(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    source = json_schema(DEEP)
    strict, lenient = compiler.compile(source).guide(source), lenient_of(compiler, source)
    tokens, anything = tokenizer.encode(BEFORE), tokenizer.encode("?!")
    with pytest.raises(UserError, match="grew too large"):
        [strict.allowed(tokens[:count]) for count in range(len(tokens) + 1)]
    held = 0
    for token in tokens:
        if lenient.allowed().flags.all():
            break
        assert not lenient.allows(anything[0])
        held += 1
        lenient.commit([token])
    assert held > 5
    assert lenient.allowed().flags.all()
    assert lenient.only() is None
    assert lenient.allows(anything[0])
    assert not lenient.complete
    assert lenient.forced() == []
    assert lenient.valid(anything) == len(anything)
    assert lenient.branch().after(anything[0]) is not None
    lenient.commit(anything)
    assert lenient.allowed().flags.all()
    assert lenient.allowed(anything).flags.all()


def test_a_draft_that_is_lost_ahead_changes_nothing_before(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    source = json_schema(DEEP)
    lenient, fresh = lenient_of(compiler, source), lenient_of(compiler, source)
    tokens = tokenizer.encode(BEFORE)
    begun, ahead = tokens[:2], tokens[2:]
    lenient.commit(begun)
    fresh.commit(begun)
    lost = lost_ahead(lenient, ahead)
    assert lenient.allowed([*lost, *tokenizer.encode("x")]).flags.all()
    assert lenient.forced(lost) == []
    assert (lenient.allowed().flags == fresh.allowed().flags).all()
    assert lenient.only() == fresh.only()
    lenient.commit(lost[:1])
    assert not lenient.allowed().flags.all()
    assert lenient.allowed(lost[1:]).flags.all(), "the place is where it was"
    lenient.commit(lost[1:])
    assert lenient.allowed().flags.all()


def test_another_way_than_the_lost_one_is_guided(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    lenient = lenient_of(compiler, regex("[0-9]+"))
    other, right = tokenizer.encode("x")[0], tokenizer.encode("7")[0]
    assert lenient.allowed([other]).flags.all(), "what is not allowed leads nowhere"
    lenient.commit([right])
    assert not lenient.allows(other)
    assert not lenient.allowed().flags.all()


def test_what_drafts_ask_loses_no_place(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    lenient = lenient_of(compiler, regex("[0-9]+ in the end"))
    wrong = tokenizer.encode("no digit")
    assert lenient.forced(wrong) == []
    assert lenient.valid(wrong) == 0
    assert lenient.valid(tokenizer.encode("7")) == 1
    assert not lenient.allowed(tokenizer.encode("7")).flags.all()
    assert not lenient.allows(wrong[0])


def test_a_token_that_is_not_allowed_lets_go_too(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    lenient = lenient_of(compiler, regex("[0-9]+"))
    lenient.commit(tokenizer.encode("x"))
    assert lenient.allowed().flags.all()
    assert tokens_of(lenient, tokenizer, "anything") is not None
