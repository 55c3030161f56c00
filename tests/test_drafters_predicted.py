"""Predicted texts: offsets, places and what follows them."""

from __future__ import annotations

import pytest

from models.drafters.predicted import PredictedText
from tests.prediction_support import Words

TEXT = "  a bee sees a bee fly"


@pytest.fixture
def words() -> Words:
    return Words()


def test_offsets_and_places_name_the_same_tokens(words: Words) -> None:
    text = PredictedText(TEXT, words)
    assert words.text(text.ids) == TEXT
    assert (text.raw, text.indent) == (TEXT.encode(), 2)
    for place, token in enumerate(text.ids):
        offset = text.offset(place)
        piece = words.token_bytes(token)
        assert text.raw.startswith(piece, offset)
        assert {text.place(offset + n) for n in range(len(piece))} == {place}
    assert text.place(len(text.raw)) == len(text.ids)


def test_ngrams_are_found_nearest_first_in_both_directions(words: Words) -> None:
    text = PredictedText("x a x b x c x d x", words)
    (x,) = words.encode(" x")
    assert text.behind((x,), 4, 9) == ([5, 7], [3])
    assert text.behind((x,), 0, 1) == ([3], [])
    assert text.behind((x,), 9, 9) == ([], [7, 5, 3]), "nothing follows the last one"
    assert text.behind((-1,), 0, 9) == ([], [])
    assert text.behind(tuple(words.encode(" b x c")), 0, 9) == ([6], [])


def test_matches_end_at_either_beginning(words: Words) -> None:
    text = PredictedText("a b c d", words)
    assert text.matched(3, words.encode("z b c"), 9) == 2
    assert text.matched(3, words.encode("z b c"), 1) == 1
    assert text.matched(3, text.ids[1:3], 9) == 2
    assert text.matched(3, text.ids[:3], 9) == 3
    assert text.matched(0, text.ids, 9) == 0


def test_what_goes_on_inside_a_token_is_encoded_anew(words: Words) -> None:
    text = PredictedText("counted(x)", words)
    whole = words.encode("counted(x)")
    assert text.continuation(0, 9) == tuple(whole)
    assert text.continuation(5, 9) == (*words.encode("ed"), *whole[1:])
    assert text.continuation(5, 2) == (*words.encode("ed"), whole[1])
    assert text.continuation(len(text.raw), 9) == ()


def test_half_a_character_is_not_encoded(words: Words) -> None:
    text = PredictedText("été", words)
    assert text.continuation(1, 9) == ()
    assert words.text(text.continuation(2, 9)) == "té"


def test_a_vocabulary_that_adds_to_what_it_encodes_is_not_believed() -> None:
    class Spaced(Words):
        """Begins every text with a space, as SentencePiece does."""

        def encode(self, text: str) -> list[int]:
            return super().encode(" " + text)

    text = PredictedText("counted now", Spaced())
    assert text.raw == b" counted now"
    assert text.indent == 1
    assert text.continuation(4, 9) == ()
    assert len(text.continuation(8, 9)) == 1


def test_what_is_beyond_its_most_is_not_there(words: Words) -> None:
    text = PredictedText(TEXT, words, 4)
    whole = PredictedText(TEXT, words)
    assert text.ids == whole.ids[:4]
    assert whole.raw.startswith(text.raw)
    assert text.place(len(text.raw)) == 4
    assert text.continuation(text.offset(3), 9) == whole.ids[3:4]
    assert PredictedText(TEXT, words, 1000).ids == whole.ids


def test_an_empty_text_has_nothing(words: Words) -> None:
    text = PredictedText("", words)
    assert (text.ids, text.raw, text.indent, text.place(0)) == ((), b"", 0, 0)
    assert text.continuation(0, 9) == ()
    assert text.behind((1,), 0, 9) == ([], [])
