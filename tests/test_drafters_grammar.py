"""Drafts are made to fit a grammar, and what it forces is proposed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pytest

from bench.rows import HostRows, host_row
from models.constraints.allowed import Allowed
from models.draft import Draft, Proposal
from models.drafters.grammar import NAME, GrammarDrafter
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import accept, make_rule

FLAT = Proposal(np.arange(10), np.full(10, 0.1))


class Slots:
    """A guide by which at each place one of the tokens named there may come; behind them nothing.

    A place with one token is forced.
    """

    def __init__(self, *places: Collection[int]) -> None:
        self.places = [set(place) for place in places]

    def valid(self, tokens: Sequence[int]) -> int:
        for index, token in enumerate(tokens):
            if index >= len(self.places) or token not in self.places[index]:
                return index
        return len(tokens)

    def forced(self, behind: Sequence[int] = ()) -> list[int]:
        tokens: list[int] = []
        for place in self.places[len(behind) :]:
            if len(place) > 1:
                break
            tokens += place
        return tokens

    def branch(self) -> Slots:
        return self

    def after(self, token: int) -> Slots | None:
        if not self.places or token not in self.places[0]:
            return None
        return Slots(*self.places[1:])


ANY = range(10)


def fit(guide: Slots, draft: Draft, budget: int = 8) -> Draft:
    return GrammarDrafter(guide).fit(draft, budget)


def test_what_fits_stays_as_it_is() -> None:
    draft = Draft((1, 2, 3), confidence=(0.5, 0.4, 0.3), source="ngram")
    assert fit(Slots(ANY, ANY, ANY, ANY), draft) is draft
    assert fit(Slots(ANY), Draft()) == Draft()
    drawn = Draft((1, 2), proposals=(FLAT, FLAT), source="eagle3")
    assert fit(Slots(ANY, ANY, ANY), drawn) is drawn


def test_a_chain_ends_before_the_first_token_that_is_forbidden() -> None:
    draft = Draft((1, 2, 3), confidence=(0.5, 0.4, 0.3), source="ngram")
    assert fit(Slots(ANY, [2, 4], [4, 5], ANY), draft) == draft.first(2)
    assert fit(Slots([4, 5], ANY), draft).tokens == ()


def test_forced_tokens_come_before_and_behind_what_is_proposed() -> None:
    guide = Slots([7], [8], ANY, [1, 2], [5], [6], ANY)
    draft = Draft((7, 8, 3, 2), confidence=(0.1, 0.2, 0.3, 0.4), source="ngram")
    fitted = fit(guide, draft)
    assert fitted.tokens == (7, 8, 3, 2, 5, 6)
    assert fitted.confidence == (1.0, 1.0, 0.3, 0.4, 1.0, 1.0)
    assert [fitted.source_of(i) for i in range(6)] == [NAME, NAME, "ngram", "ngram", NAME, NAME]
    assert fit(guide, draft, budget=5).tokens == (7, 8, 3, 2, 5)
    assert fit(guide, draft, budget=4).tokens == (7, 8, 3, 2)
    # What was wrong makes room for what is forced.
    assert fit(guide, Draft((7, 8, 3, 2, 9), source="ngram")).tokens == (7, 8, 3, 2, 5, 6)


def test_forced_tokens_take_precedence() -> None:
    guide = Slots([7], [8], [9], ANY)
    for draft in (Draft(), Draft((7, 1, 2), source="ngram"), Draft((1,), parents=(-1,))):
        fitted = fit(guide, draft)
        assert fitted == Draft((7, 8, 9), confidence=(1.0, 1.0, 1.0), source=NAME)
    assert fit(guide, Draft((3, 4), source="ngram"), budget=2).tokens == (7, 8)


def test_of_drawn_tokens_the_forbidden_one_stays_to_be_rejected() -> None:
    draft = Draft((1, 2, 3), proposals=(FLAT,) * 3, confidence=(0.5,) * 3, source="eagle3")
    fitted = fit(Slots(ANY, [4, 5], ANY), draft)
    assert fitted == draft.first(2)
    assert fit(Slots([4, 5], ANY), draft) == draft.first(1)


def test_forced_tokens_around_drawn_ones_were_not_drawn() -> None:
    draft = Draft((7, 2), proposals=(FLAT, FLAT), source="eagle3")
    fitted = fit(Slots([7], ANY, [5], ANY), draft)
    assert fitted.tokens == (7, 2, 5)
    assert fitted.proposals is not None
    assert [proposal.ids.size for proposal in fitted.proposals] == [1, 10, 1]
    assert fitted.proposals[2].of(5) == 1
    assert fitted.confidence == (1.0,) * 3


def test_a_tree_loses_the_branches_that_are_forbidden() -> None:
    tree = Draft(
        (1, 2, 3, 4, 5),
        parents=(-1, 0, 0, -1, 3),
        confidence=(0.5, 0.4, 0.3, 0.2, 0.1),
        sources=("ngram", "eagle3", "ngram", "eagle3", "ngram"),
    )
    pruned = fit(Slots([1, 4], [3, 5], ANY), tree)
    assert pruned.tokens == (1, 3, 4, 5)
    assert pruned.parents == (-1, 0, -1, 2)
    assert pruned.confidence == (0.5, 0.3, 0.2, 0.1)
    assert pruned.sources == ("ngram", "ngram", "eagle3", "ngram")
    chain = fit(Slots([4, 6], [5, 6], ANY), tree)
    assert (chain.tokens, chain.parents) == ((4, 5), None)
    assert fit(Slots(ANY, ANY, ANY), tree) is tree
    assert fit(Slots([0, 9], ANY), tree).tokens == ()


@pytest.mark.parametrize("rule", ["coupled", "classic"])
def test_drawn_drafts_that_were_fitted_leave_the_distribution(rule: str) -> None:
    """Over seeds the first token is distributed as the target is among the allowed ones."""
    logits = np.array([1.0, 0.5, 0.0, 1.5, -0.5, 0.2], dtype=np.float32)
    flags = np.array([True, False, True, True, False, True])
    q = np.array([0.05, 0.5, 0.1, 0.1, 0.2, 0.05])
    expected = np.where(flags, np.exp(logits), 0)
    expected /= expected.sum()
    guide = Slots(np.flatnonzero(flags).tolist(), range(6), range(6))
    rows = HostRows([host_row(logits, 3)] * 3)
    random, count = np.random.default_rng(1), 12_000
    said = np.zeros(6)
    for seed in range(count):
        drawn = random.choice(6, size=2, p=q).tolist()
        proposals = (Proposal(np.arange(6), q),) * 2 if rule == "classic" else None
        fitted = fit(guide, Draft(tuple(drawn), proposals=proposals, source="eagle3"), 2)
        sampler = Sampler(Sampling(temperature=1, seed=seed), [0], (), _First(flags))
        outcome = accept(fitted, rows, sampler, make_rule(rule))
        said[outcome.tokens(fitted.tokens)[0]] += 1
    assert said / count == pytest.approx(expected, abs=0.02)


class _First:
    """Allows `flags` at the first place and everything behind it."""

    def __init__(self, flags: np.ndarray) -> None:
        self._flags = flags

    def only(self, ahead: Sequence[int] = ()) -> None:
        return None

    def allows(self, token: int, ahead: Sequence[int] = ()) -> bool:
        return bool(ahead) or bool(self._flags[token])

    def allowed(self, ahead: Sequence[int] = ()) -> Allowed:
        return Allowed(np.ones_like(self._flags) if ahead else self._flags)

    def commit(self, tokens: Sequence[int]) -> None:
        raise AssertionError("acceptance commits nothing")
