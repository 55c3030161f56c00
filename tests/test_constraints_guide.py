"""What may come next is a function of the tokens, whatever was asked before."""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.constraints.compiler import GrammarCompiler
from models.constraints.guide import Guide
from models.constraints.source import ConstraintSource
from models.errors import UserError
from models.package import Package
from models.tokenizer import Tokenizer
from tests.constraints_support import (
    RECORD,
    compiler_of,
    flags_of,
    json_schema,
    lark,
    regex,
    tokenizer_of,
    tokens_of,
)

SOURCES = (
    json_schema(RECORD),
    ConstraintSource("json_object"),
    regex("(the|then|other) [a-z]{1,4}!"),
    lark('start: item (", " item)*\nitem: "in the " WORD | "in " NUMBER\n'
         "WORD: /[a-z]+/\nNUMBER: /[0-9]{1,3}/"),
)  # fmt: skip


@pytest.fixture(scope="module")
def compiler(package: Package) -> GrammarCompiler:
    return compiler_of(package)


@pytest.fixture(scope="module")
def tokenizer(package: Package) -> Tokenizer:
    return tokenizer_of(package)


@pytest.fixture(scope="module")
def eos(package: Package) -> int:
    return package.manifest.target.eos_ids[0]


def guide_of(compiler: GrammarCompiler, source: ConstraintSource) -> Guide:
    return compiler.compile(source).guide(source)


def wander(guide: Guide, random_: random.Random, count: int, eos: int) -> list[int]:
    """Up to `count` allowed tokens, committed, at random; no end of sequence."""
    walked: list[int] = []
    while len(walked) < count and not guide.complete:
        flags = flags_of(guide).copy()
        flags[eos] = False
        walked.append(random_.choice(np.flatnonzero(flags).tolist()))
        guide.commit(walked[-1:])
    return walked


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_looking_ahead_and_turning_back_changes_nothing(
    compiler: GrammarCompiler, source: ConstraintSource, eos: int
) -> None:
    """vllm#15554, TRT-LLM#7878: drafts broke the state of the grammar."""
    grammar = compiler.compile(source)
    for seed in range(12):
        random_ = random.Random(seed)
        tokens = wander(grammar.guide(source), random_, 14, eos)
        plain, searched = grammar.guide(source), grammar.guide(source)
        for index, token in enumerate(tokens):
            rest = tokens[index:]
            for _ in range(3):
                ahead = rest[: random_.randint(0, len(rest))]
                wrong = [*ahead, random_.randrange(3, 300)]
                assert searched.valid(rest) == len(rest)
                assert searched.valid(wrong) in (len(ahead), len(wrong))
                searched.forced(ahead)
                branch = searched.branch()
                assert rest == [] or branch.after(rest[0]) is not None
                searched.allows(wrong[-1], ahead)
                searched.only(ahead)
            expected = flags_of(plain)
            assert (flags_of(searched) == expected).all()
            assert expected[token]
            plain.commit([token])
            searched.commit([token])
        assert plain.complete == searched.complete


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.kind)
def test_each_way_of_asking_says_the_same(
    compiler: GrammarCompiler, source: ConstraintSource, eos: int
) -> None:
    guide = guide_of(compiler, source)
    random_ = random.Random(5)
    while len(wander(guide, random_, 1, eos)):
        only, allowed = guide.only(), guide.allowed()
        if only is None:
            some = random_.sample(range(300), 60)
            assert [guide.allows(token) for token in some] == allowed.flags[some].tolist()
        elif not guide.complete:
            assert allowed.ids.tolist() == [only]
            assert guide.forced()[0] == only
            assert guide.allows(only)
        if len(guide._committed) > 30:
            break


def test_the_end_comes_where_the_text_is_complete_and_nowhere_else(
    compiler: GrammarCompiler, tokenizer: Tokenizer, eos: int
) -> None:
    guide = guide_of(compiler, regex("[0-9]{1,2}"))
    assert not flags_of(guide)[eos]
    assert not guide.allows(eos)
    tokens_of(guide, tokenizer, "4")
    assert flags_of(guide)[eos]
    assert guide.allows(eos)
    assert not guide.complete
    tokens_of(guide, tokenizer, "2")
    assert guide.complete
    assert guide.only() == guide.ending == eos
    assert guide.only([eos]) == eos
    assert np.flatnonzero(flags_of(guide)).tolist() == [eos]


def test_a_special_token_is_no_text(
    compiler: GrammarCompiler, tokenizer: Tokenizer, eos: int
) -> None:
    anything = guide_of(compiler, regex(r"(.|\n)*"))
    special = sorted(tokenizer.special_ids - {eos})
    assert not flags_of(anything)[special].any()
    spelled = guide_of(compiler, json_schema({"const": "<|im_end|> and <|im_start|>"}))
    tokens = tokens_of(spelled, tokenizer, '"<|im_end|> and <|im_start|>"')
    assert tokens is not None
    assert not tokenizer.special_ids.intersection(tokens)
    assert spelled.complete


def test_forced_text_is_known_ahead_in_its_canonical_tokens(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    guide = guide_of(compiler, json_schema(RECORD))
    forced = guide.forced()
    text = tokenizer.decode(forced)
    assert '{"name": "'.startswith(text)
    assert len(text) > 6
    assert forced == tokenizer.encode('{"name": "')[: len(forced)]
    guide.commit(forced[:2])
    assert guide.forced() == forced[2:]
    assert guide.only(forced[2:4]) == forced[4]


def test_forced_tokens_behind_a_draft(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    guide = guide_of(compiler, regex("(yes|no) in the end"))
    ahead = tokenizer.encode("yes")
    behind = guide.forced(ahead)
    assert " in the end".startswith(tokenizer.decode(behind))
    assert len(tokenizer.decode(behind)) > 6
    assert guide.forced() == []


def test_a_token_that_was_not_allowed_ends_it_and_has_it_compiled_anew(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    source = ConstraintSource("regex", "[0-9]+", "text.format.regex")
    grammar = compiler.compile(source)
    guide = grammar.guide(source)
    assert not grammar.broken
    with pytest.raises(UserError) as caught:
        guide.commit(tokenizer.encode("x"))
    assert (caught.value.code, caught.value.param) == ("constraint_failed", "text.format.regex")
    assert grammar.broken
