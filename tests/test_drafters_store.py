"""N-grams of what was said to the same user before."""

from __future__ import annotations

import random

import pytest

from models.drafters.store import StoreDrafter, Texts


def drafter(texts: Texts, prompt: tuple[int, ...]) -> StoreDrafter:
    made = StoreDrafter(texts)
    made.reset(prompt)
    return made


def test_what_followed_is_proposed_again() -> None:
    texts = Texts([(1, 2, 3, 4, 5, 6, 7)])
    draft = drafter(texts, (9, 2, 3, 4)).propose(2)
    assert (draft.tokens, draft.source, draft.parents) == ((5, 6), "ngram-store", None)
    assert draft.confidence is not None
    assert all(0 < each < 1 for each in draft.confidence)


@pytest.mark.parametrize("prompt", [(), (3,), (3, 4), (8, 3, 4), (5, 6, 7), (4, 5, 6, 7)])
def test_nothing_is_proposed_without_three_tokens_that_went_on(prompt: tuple[int, ...]) -> None:
    texts = Texts([(1, 2, 3, 4, 5, 6, 7)])
    assert drafter(texts, prompt).propose(4).tokens == ()


def test_it_never_copies_across_the_end_of_a_text() -> None:
    texts = Texts([(1, 2, 3, 4), (5, 6, 7)])
    assert drafter(texts, (1, 2, 3)).propose(8).tokens == (4,)
    assert drafter(texts, (3, 4, 5)).propose(8).tokens == ()


def test_the_longest_match_wins_then_the_latest() -> None:
    texts = Texts([(9, 1, 2, 3, 50), (1, 2, 3, 60), (8, 1, 2, 3, 70)])
    assert drafter(texts, (9, 1, 2, 3)).propose(1).tokens == (50,)
    assert drafter(texts, (4, 1, 2, 3)).propose(1).tokens == (70,)


def test_committed_tokens_move_the_match() -> None:
    made = drafter(Texts([(1, 2, 3, 4, 5, 6, 7)]), (0, 1))
    made.commit((2,))
    assert made.propose(4).tokens == ()
    made.commit((3, 4))
    assert made.propose(4).tokens == (5, 6, 7)


def test_outcomes_change_the_confidence_of_this_request() -> None:
    texts = Texts([(1, 2, 3, 4, 5)])
    made = drafter(texts, (1, 2, 3))
    before = made.propose(1).confidence
    for _ in range(10):
        made.commit((8,))
        made.commit((1, 2, 3))
        made.propose(1)
    after = made.propose(1).confidence
    assert before is not None
    assert after is not None
    assert after[0] < before[0]
    assert drafter(texts, (1, 2, 3)).propose(1).confidence == before


def test_it_is_bounded_and_forgets_the_oldest() -> None:
    texts = Texts(most=40)
    for number in range(30):
        texts.add((number, number + 100, number + 200, number + 300))
        assert len(texts) <= 40
    assert drafter(texts, (29, 129, 229)).propose(1).tokens == (329,)
    assert drafter(texts, (0, 100, 200)).propose(1).tokens == ()
    kept = list(texts)
    assert kept == [(n, n + 100, n + 200, n + 300) for n in range(30 - len(kept), 30)]
    assert len(kept) >= 4, "half of what fits, at least"


def test_of_a_text_that_is_too_long_the_end_is_kept() -> None:
    texts = Texts([tuple(range(100))], most=40)
    assert len(texts) <= 20
    assert drafter(texts, (95, 96, 97)).propose(2).tokens == (98, 99)


def test_whatever_it_proposes_followed_what_it_was_asked_for() -> None:
    """Against the definition, on random texts of few tokens."""
    dice = random.Random(1)
    texts = [tuple(dice.randrange(4) for _ in range(dice.randrange(1, 30))) for _ in range(20)]
    store = Texts(texts)
    found = 0
    for _ in range(300):
        prompt = tuple(dice.randrange(4) for _ in range(8))
        draft = drafter(store, prompt).propose(3)
        after = {
            text[place + 3 : place + 6]
            for text in texts
            for place in range(len(text) - 3)
            if text[place : place + 3] == prompt[-3:]
        }
        assert draft.tokens in after if after else draft.tokens == ()
        found += bool(draft.tokens)
    assert found > 100
