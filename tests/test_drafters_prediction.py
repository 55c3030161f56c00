"""A prediction as a drafter: where it goes on after edits, and what a wrong one costs."""

from __future__ import annotations

import random

import pytest

from models.drafters.prediction import PredictionDrafter
from tests.prediction_support import Words, drafter_of, follow, time_of

LINES = [
    "def total(prices):",
    "    result = 0",
    "    for price in prices:",
    "        result += price",
    "    return result",
    "",
    "def mean(prices):",
    "    if not prices:",
    "        raise ValueError('no prices')",
    "    return total(prices) / len(prices)",
    "",
]
CODE = "\n".join(LINES)


def edited(old: str, new: str) -> str:
    assert CODE.count(old) == 1
    return CODE.replace(old, new)


@pytest.fixture
def words() -> Words:
    return Words()


def proposes(drafter: PredictionDrafter, words: Words, budget: int = 4) -> str:
    return words.text(drafter.propose(budget).tokens)


def test_an_answer_as_predicted_takes_full_drafts(words: Words) -> None:
    drafter = drafter_of(words, CODE)
    followed = follow(drafter, words.encode(CODE), budget=8)
    assert followed.wrong == 0
    assert followed.rounds <= -(-len(words.encode(CODE)) // 9) + 1


def test_it_says_who_it_is_and_how_sure(words: Words) -> None:
    drafter = drafter_of(words, CODE)
    first = drafter.propose(5)
    assert (first.source, first.parents, first.proposals) == ("prediction", None, None)
    assert words.text(first.tokens) == words.text(words.encode(CODE)[:5])
    assert first.confidence is not None
    assert all(0 < each < 1 for each in first.confidence)
    assert list(first.confidence) == sorted(first.confidence), "a longer match is surer"


def test_the_prompt_is_no_part_of_the_answer(words: Words) -> None:
    drafter = drafter_of(words, CODE, prompt=CODE[:60])
    assert proposes(drafter, words, 3) == "def total("


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_it_keeps_to_its_budget(words: Words, budget: int) -> None:
    assert len(drafter_of(words, CODE).propose(budget).tokens) == budget


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        (edited("result = 0", "result = 0.0"), 3),
        (edited("    result = 0\n", "    result = 0\n    count = len(prices)\n"), 8),
        (edited("        result += price\n", ""), 3),
        (edited("    if not prices:\n        raise ValueError('no prices')\n", ""), 4),
        (edited("'no prices'", "'there is nothing to take the mean of'"), 10),
        ("# Sums.\n" + CODE, 6),
        (CODE.replace("result", "amount"), 12),
        (CODE.replace("price", "cost"), 18),
    ],
    ids=[
        "replaced",
        "line inserted",
        "line deleted",
        "lines deleted",
        "words inserted",
        "before it",
        "renamed",
        "renamed inside words",
    ],
)
def test_after_an_edit_it_goes_on_behind_it(words: Words, answer: str, lost: int) -> None:
    """All but `lost` tokens of the answer are proposed at their place."""
    ids = words.encode(answer)
    drafter = drafter_of(words, CODE)
    proposed = 0
    for token in ids:
        proposed += drafter.propose(1).tokens == (token,)
        drafter.commit((token,))
    assert proposed >= len(ids) - lost
    assert follow(drafter_of(words, CODE), ids).rounds < len(ids) / 2


def test_behind_a_replaced_word_comes_what_came_behind_it(words: Words) -> None:
    drafter = drafter_of(words, "one two three four five six seven")
    drafter.commit(words.encode("one two three four V"))
    assert proposes(drafter, words) == " six seven"
    drafter.commit((words.token(b" V"),))
    assert proposes(drafter, words) == "", "and not a second time"


def test_the_nearest_place_behind_a_divergence_is_preferred(words: Words) -> None:
    """Rows that begin alike: the next one, not the last or the first."""
    rows = [f"row {name}, width 10, height 20;\n" for name in "abcdefgh"]
    answer = "".join(rows).replace("row d, width 10", "row d, width 99")
    drafter = drafter_of(words, "".join(rows))
    split = answer.index(", height", answer.index("99"))
    drafter.commit(words.encode(answer[:split]))
    drafter.commit(words.encode(","))
    assert words.text(drafter.propose(6).tokens) == " height 20;\n" + "row e"


def test_a_repetition_in_the_prediction_is_followed_in_order(words: Words) -> None:
    text = "again and again and again and again, then the end of it."
    assert follow(drafter_of(words, text), words.encode(text)).wrong == 0


def test_what_came_before_is_found_again_by_a_longer_match(words: Words) -> None:
    """The answer says everything twice."""
    once = words.encode(CODE)
    drafter = drafter_of(words, CODE)
    drafter.commit(once)
    assert drafter.propose(4).tokens == ()
    drafter.commit(once[:6])
    assert drafter.propose(4).tokens == tuple(once[6:10])


def test_where_it_may_be_is_less_sure_than_where_it_is(words: Words) -> None:
    drafter = drafter_of(words, CODE)
    drafter.commit(words.encode("def total(prices):\n    result = 0"))
    known = drafter.propose(1).confidence
    drafter.commit(words.encode(" or none of the"))
    drafter.commit(words.encode("):"))
    found = drafter.propose(1).confidence
    assert known is not None
    assert found is not None
    assert found[0] < known[0]


def test_a_short_prediction_ends_and_a_long_one_is_cut(words: Words) -> None:
    ids = words.encode(CODE)
    short = drafter_of(words, words.text(ids[:10]))
    short.commit(ids[:8])
    assert short.propose(9).tokens == tuple(ids[8:10])
    short.commit(ids[8:10])
    assert short.propose(9).tokens == ()
    short.commit((words.token(b" never"),))
    assert short.propose(9).tokens == ()
    long = follow(drafter_of(words, CODE + CODE), ids)
    assert long.wrong == 0


@pytest.mark.parametrize("text", ["", " ", "a"])
def test_there_may_be_next_to_nothing(words: Words, text: str) -> None:
    drafter = drafter_of(words, text)
    assert follow(drafter, words.encode("a b c")).wrong <= 1
    assert drafter.propose(4).tokens == ()


@pytest.mark.parametrize(
    ("prediction", "first"),
    [("the end.", " the"), (" the end.", "the"), ("\n\nthe end.", "the"), ("the end.", "\n")],
)
def test_blanks_that_an_answer_begins_with_do_not_matter(
    words: Words, prediction: str, first: str
) -> None:
    drafter = drafter_of(words, prediction)
    drafter.commit(words.encode(first))
    if not first.strip():
        drafter.commit(words.encode("the"))
    assert proposes(drafter, words) == " end."


def test_other_token_boundaries_are_the_same_text(words: Words) -> None:
    drafter = drafter_of(words, "x = counted(items)\n    return x")
    drafter.commit([words.token(piece) for piece in (b"x", b" =", b" coun")])
    assert proposes(drafter, words, 3) == "ted(items"
    drafter.commit([words.token(piece) for piece in (b"ted(it", b"ems)\n")])
    assert proposes(drafter, words, 3) == "    return x"
    drafter.commit([words.token(b"    ret")])
    assert proposes(drafter, words, 2) == "urn x"


def test_the_state_is_that_of_the_tokens_however_they_came(words: Words) -> None:
    """In rounds of any length, with and without proposals in between."""
    dice = random.Random(3)
    answer = words.encode(CODE.replace("price", "cost").replace("mean", "average") + CODE)
    whole, pieces = drafter_of(words, CODE), drafter_of(words, CODE)
    whole.commit(answer)
    at = 0
    while at < len(answer):
        pieces.propose(dice.randrange(4))
        size = dice.randrange(1, 6)
        pieces.commit(answer[at : at + size])
        at += size
    assert pieces.propose(9).tokens == whole.propose(9).tokens


def test_a_request_begins_anew(words: Words) -> None:
    drafter = drafter_of(words, CODE)
    before = drafter.propose(6)
    follow(drafter, words.encode("nothing of this was said by anybody, ever"))
    drafter.reset(())
    assert drafter.propose(6) == before


def test_outcomes_change_the_confidence(words: Words) -> None:
    drafter = drafter_of(words, " ".join(["and so on"] * 40))
    before = drafter.propose(1).confidence
    for number in range(20):
        drafter.commit((words.token(f" {number}".encode()),))
        drafter.commit((words.token(b" so"),))
        drafter.propose(1)
    after = drafter.propose(1).confidence
    assert before is not None
    assert after is not None
    assert after[0] < before[0]


def test_what_is_proposed_comes_from_the_prediction_whatever_is_said(words: Words) -> None:
    dice = random.Random(5)
    letters = "abcde"
    prediction = " ".join(dice.choice(letters) for _ in range(200))
    drafter = drafter_of(words, prediction)
    for _ in range(500):
        draft = drafter.propose(5)
        assert words.text(draft.tokens) in prediction
        assert (draft.confidence is None) == (not draft.tokens)
        drafter.commit(words.encode(" " + dice.choice(letters)))


def sentence(dice: random.Random, count: int) -> str:
    """Frequent words are in every text, as in real ones."""
    frequent = ["the", "of", "and", "a", "to", "in"]
    rare = [f"{first}{second}" for first in "bcdfghklmnprst" for second in ("ar", "en", "ol")]
    return " ".join(dice.choice(frequent if dice.random() < 0.4 else rare) for _ in range(count))


@pytest.mark.parametrize("seed", range(8))
def test_a_wrong_prediction_costs_under_three_percent(words: Words, seed: int) -> None:
    """Policy `cost`, 300 tokens, drafts of up to 31: another text with the same frequent words."""
    dice = random.Random(seed)
    answer, other = sentence(dice, 300), sentence(dice, 300)
    assert time_of(drafter_of(words, other), words.encode(answer)) < 1.03


@pytest.mark.parametrize("seed", range(4))
def test_a_prediction_that_turns_wrong_costs_under_three_percent(words: Words, seed: int) -> None:
    """Beside plain decoding of what comes after its turn."""
    dice = random.Random(seed)
    shared = sentence(dice, 100)
    drafter = drafter_of(words, f"{shared} {sentence(dice, 300)}")
    turned = sentence(dice, 300)
    whole = words.encode(f"{shared} {turned}")
    spent = time_of(drafter, whole) * (len(whole) - 1)
    right = time_of(drafter_of(words, shared), words.encode(shared)) * (len(whole) - 1 - 300)
    assert spent - right < 1.03 * 300 + 2


def test_a_right_prediction_pays(words: Words) -> None:
    answer = sentence(random.Random(9), 300)
    assert time_of(drafter_of(words, answer), words.encode(answer)) < 0.15
    altered = " ".join(
        "altered" if place % 20 == 19 else word for place, word in enumerate(answer.split())
    )
    assert time_of(drafter_of(words, altered), words.encode(answer)) < 0.35
