from __future__ import annotations

import re

import numpy as np
import pytest

from export.training import texts
from export.training.german import german_sentence
from export.training.material import load_material
from export.training.problems import problem


def test_tokenised_sets_punctuation_apart_but_not_in_numbers() -> None:
    text = "„Es kostet 3,5 Euro“, sagte er (2024)."
    assert texts.tokenised(text) == "„ Es kostet 3,5 Euro “ , sagte er ( 2024 ) ."


def test_flatten_drops_headings_and_emphasis() -> None:
    text = "# Title\n**Part one**\n\nA **bold**  word.\n---\nAnother line.\n"
    assert texts.flatten(text, " ") == "A bold word. Another line."
    assert texts.flatten(text, "\n") == "A bold word.\nAnother line."


def test_first_words_keeps_what_lies_between() -> None:
    assert texts.first_words("a  b\n\nc d", 3) == "a  b\n\nc"
    assert texts.first_words("a b", 5) == "a b"


def test_a_loop_is_cut_where_it_begins_to_repeat() -> None:
    text = "So it begins. They went to the big old house. They went to the big old house. They"
    assert texts.before_repeating(text) == "So it begins. They went to the big old house."
    fine = "They went to the house. They went to the shop. They went to the sea."
    assert texts.before_repeating(fine) == fine
    far = "one two three four five six seven " + " ".join(map(str, range(120)))
    assert texts.before_repeating(f"{far} one two three four five six seven").endswith("seven")


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("who is that? And", "who is that?"),
        ("\n Why not\n really?", None),
        ("nothing asked", None),
        ("?", None),
    ],
)
def test_first_question(text: str, question: str | None) -> None:
    assert texts.first_question(text) == question


def test_whole_problem_ends_with_its_last_question() -> None:
    text = "Ann has 3 cats. Are there more? How many?  Let us see.\n\nAnswer?"
    assert texts.whole_problem(text) == "Ann has 3 cats. Are there more? How many?"
    assert texts.whole_problem("How are you?") is None
    assert texts.whole_problem("Ann has 3 cats.") is None


def test_beginning_and_items() -> None:
    assert texts.beginning("A boy has 5 red balls. He runs.", 1.0) == "A boy has 5 red balls."
    assert texts.beginning("A boy has 5 red balls. He runs.", 0.5) == "A boy has"
    assert texts.list_items("- one\n two\n-thr") == ["one", "two"]


def test_sentences_and_problems_are_filled_and_various() -> None:
    draw, material = np.random.default_rng(3), load_material()
    sentences = {german_sentence(draw, material) for _ in range(300)}
    problems = {problem(draw) for _ in range(300)}
    assert len(sentences) > 280
    assert len(problems) > 280
    for text in sentences | problems:
        assert not re.search(r"[{}]", text)
        assert text == text.strip()
    assert all(text.endswith("?") or "?" in text for text in problems)
    assert sum(" ." in text for text in sentences) > 150, "tokenised as news corpora are"
