"""How far a drafter's confidence is believed."""

from __future__ import annotations

import random

import pytest

from gateway.engine.policies.trust import Trust
from models.draft import Draft


def chain(*confidence: float, source: str = "ngram") -> Draft:
    return Draft(tuple(range(1, 1 + len(confidence))), confidence=confidence, source=source)


def observe(trust: Trust, promised: float, share: float, rounds: int) -> None:
    """Drafts of one token that is right with probability `share`."""
    chance = random.Random(3)
    for _ in range(rounds):
        trust.observe(chain(promised), (1,) if chance.random() < share else (7,))


def test_nobody_is_distrusted_before_there_are_outcomes() -> None:
    draft = chain(0.9, 0.5)
    assert Trust().factor("ngram") == 1.0
    assert Trust().believed(draft) is draft.confidence
    assert Trust().believed(Draft((1, 2))) == [1.0, 1.0]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
def test_who_keeps_his_promises_is_believed(share: float) -> None:
    trust = Trust()
    factors = []
    for _ in range(20):
        observe(trust, share, share, 10)
        factors.append(trust.factor("ngram"))
    assert sum(factors) / len(factors) > 0.93


@pytest.mark.parametrize(("promised", "share"), [(0.9, 0.45), (0.8, 0.2), (0.5, 0.1)])
def test_who_promises_too_much_is_believed_as_much_less(promised: float, share: float) -> None:
    trust = Trust()
    observe(trust, promised, share, 300)
    assert promised * trust.factor("ngram") < 1.6 * share


def test_who_promises_too_little_is_not_believed_more() -> None:
    trust = Trust()
    observe(trust, 0.3, 1.0, 100)
    assert trust.factor("ngram") == 1.0


def test_promises_that_are_all_broken_are_no_chance() -> None:
    """Twice 99 % is one in ten thousand."""
    trust = Trust()
    trust.observe(chain(0.99), (7,))
    assert trust.factor("ngram") == 1.0
    trust.observe(chain(0.99), (7,))
    assert trust.factor("ngram") < 0.11
    trust = Trust()
    for _ in range(5):
        trust.observe(chain(0.5), (7,))
    assert trust.factor("ngram") > 0.8, "one in thirty-two is"


def test_drafters_are_judged_apart() -> None:
    trust = Trust()
    mixed = Draft((1, 2), (-1, -1), None, (0.6, 0.3), "both", sources=("ngram", "eagle3"))
    for _ in range(4):
        trust.observe(chain(0.99), (7,))
    assert trust.factor("eagle3") == 1.0
    low = trust.factor("ngram")
    assert trust.believed(mixed) == [pytest.approx(0.6 * low), 0.3]


def test_tokens_of_one_place_promise_together() -> None:
    """A tree whose two first tokens are worth 0.9 together, and one of them always right."""
    trust = Trust()
    tree = Draft((1, 2), (-1, -1), None, (0.5, 0.4), "ngram")
    for index in range(200):
        trust.observe(tree, (1 + index % 2,))
    assert trust.factor("ngram") == 1.0


def test_a_draft_without_confidence_promises_nothing() -> None:
    trust = Trust()
    trust.observe(Draft((1, 2), source="x"), (7,))
    assert trust.factor("x") == 1.0
