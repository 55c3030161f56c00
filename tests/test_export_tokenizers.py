"""Two tokenizers are the same only where the same ids mean the same tokens, cut the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from export.tokenizers import NamedTokenizer, check_same_tokens, first_difference
from models.errors import UserError

_MERGES = (("1", "2"), ("q", "u"), ("z", "q"), ("zq", "z"), ("e", "f"))


def small(merges: tuple[tuple[str, str], ...] = _MERGES) -> Tokenizer:
    """Bytes and a few merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *("".join(pair) for pair in _MERGES)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def difference(one: Tokenizer, other: Tokenizer) -> str | None:
    return first_difference(NamedTokenizer("target-1b", one), NamedTokenizer("draft-tiny", other))


def changed(change: Callable[[Tokenizer], Any]) -> Tokenizer:
    tokenizer = small()
    change(tokenizer)
    return tokenizer


def cut_by(*rules: Any) -> Tokenizer:
    def change(tokenizer: Tokenizer) -> None:
        last = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*rules, last])

    return changed(change)


def test_a_tokenizer_is_the_same_as_itself_however_it_was_written() -> None:
    assert difference(small(), Tokenizer.from_str(small().to_str())) is None
    assert difference(small(), cut_by()) is None


def test_how_texts_are_padded_or_cut_short_makes_no_difference() -> None:
    def change(tokenizer: Tokenizer) -> None:
        tokenizer.enable_truncation(3)
        tokenizer.enable_padding(length=50)

    assert difference(small(), changed(change)) is None
    assert difference(changed(change), small()) is None


def test_what_only_pads_a_vocabulary_makes_no_difference() -> None:
    def change(tokenizer: Tokenizer) -> None:
        size = tokenizer.get_vocab_size()
        tokenizer.add_tokens([f"[PAD{size + place}]" for place in range(8)])

    assert difference(small(), changed(change)) is None
    assert difference(changed(change), small()) is None


def test_different_vocabularies_are_refused_naming_both() -> None:
    """sglang#24051: with another vocabulary a drafter proposes garbage, and nobody says so."""
    letters = {token: index for index, token in enumerate(" abcdefgh")}
    other = Tokenizer(models.BPE(vocab=letters, merges=[]))
    with pytest.raises(UserError) as refused:
        check_same_tokens(
            NamedTokenizer("tiny-llama", small()), NamedTokenizer("letters", other), "--draft"
        )
    assert refused.value.code == "tokenizer_mismatch"
    assert refused.value.param == "--draft"
    assert refused.value.message == (
        "letters cannot draft for tiny-llama:"
        " token 0 is '!' in tiny-llama and ' ' in letters (261 ids differ)."
    )


def test_of_one_size_two_vocabularies_may_differ() -> None:
    vocabulary = small().get_vocab()
    vocabulary["qu"], vocabulary["ef"] = vocabulary["ef"], vocabulary["qu"]
    swapped = small()
    swapped.model = models.BPE(vocab=vocabulary, merges=list(_MERGES))
    assert difference(small(), swapped) == (
        "token 257 is 'qu' in target-1b and 'ef' in draft-tiny (2 ids differ)"
    )


def test_a_token_that_one_has_more_is_a_difference() -> None:
    more = changed(lambda tokenizer: tokenizer.add_special_tokens([AddedToken("<|tool|>")]))
    assert difference(more, small()) == (
        "token 261 is '<|tool|>' in target-1b and nothing in draft-tiny"
    )
    assert difference(small(), more) == (
        "token 261 is nothing in target-1b and '<|tool|>' in draft-tiny"
    )


def test_the_order_of_merges_is_a_difference() -> None:
    reordered = small((*_MERGES[:1], _MERGES[4], *_MERGES[2:4], _MERGES[1]))
    assert difference(small(), reordered) == (
        "merge 1 is 'q' + 'u' in target-1b and 'e' + 'f' in draft-tiny"
    )


def test_a_missing_merge_is_a_difference() -> None:
    assert difference(small(), small(_MERGES[:4])) == (
        "merge 4 is 'e' + 'f' in target-1b and none in draft-tiny"
    )


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (cut_by(pre_tokenizers.Digits(individual_digits=True)), "0 12 123"),
        (changed(lambda t: setattr(t, "normalizer", normalizers.Lowercase())), "The quick"),
        (
            changed(lambda t: setattr(t, "normalizer", normalizers.NFC())),
            "e\u0301 n\u0303",
        ),
        (
            changed(
                lambda t: setattr(
                    t, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)
                )
            ),
            "The quick",
        ),
    ],
)
def test_texts_that_are_cut_or_normalised_otherwise_are_shown(other: Tokenizer, text: str) -> None:
    said = difference(small(), other)
    assert said is not None
    assert said[1:].startswith(text)
    assert "in target-1b and" in said
    assert said.endswith("in draft-tiny")


def test_where_rules_differ_every_token_is_tried() -> None:
    """No sample text has this token; only rules that are written differently ask for all."""
    said = difference(small(), cut_by(pre_tokenizers.Split("zqz", "isolated")))
    assert said is None
    said = difference(small(), cut_by(pre_tokenizers.Split("qz", "isolated")))
    assert said is not None
    assert said.startswith("'zqz' is [259 'zqz'] in target-1b and [")


def test_added_tokens_are_read_inside_a_text() -> None:
    """In one the text of a special token is a token, in the other only where it stands alone."""

    def special(single_word: bool) -> Tokenizer:
        added = AddedToken("<|end|>", single_word=single_word)
        return changed(lambda tokenizer: tokenizer.add_special_tokens([added]))

    assert difference(special(False), special(False)) is None
    said = difference(special(False), special(True))
    assert said is not None
    assert said.startswith("'a<|end|>b <|end|> c'")


def test_a_token_that_one_finds_and_the_other_makes_is_a_difference() -> None:
    """An added token is found before texts are cut: `f` is then never part of `ef`."""
    found = changed(lambda tokenizer: tokenizer.add_tokens([AddedToken("qu", normalized=False)]))
    assert difference(small(), found) is None
    found = changed(lambda tokenizer: tokenizer.add_tokens([AddedToken("f", normalized=False)]))
    for one, other in ((small(), found), (found, small())):
        assert difference(one, other) is not None


def test_scores_of_a_unigram_model_are_compared() -> None:
    def unigram(score: float) -> Tokenizer:
        return Tokenizer(models.Unigram([("<unk>", 0.0), ("a", score), ("b", -2.0)], 0, False))

    assert difference(unigram(-1.0), unigram(-1.00001)) is None
    assert difference(unigram(-1.0), unigram(-1.5)) == (
        "token 'a' scores -1.0000 in target-1b and -1.5000 in draft-tiny"
    )


def test_kinds_of_tokenizers_are_compared() -> None:
    vocabulary = {"a": 0, "b": 1}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    pairs = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    assert difference(words, pairs) == "target-1b is a WordLevel tokenizer, draft-tiny is a BPE one"
