"""The rules that trade the distribution for longer drafts: thresholds worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.rows import HostRow, HostRows, host_row
from models.draft import Draft, Proposal
from models.sampling.distribution import Distribution
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import Outcome, accept, make_rule
from models.verification.lossy import AdaSD, Midpoint, jensen_shannon_distance
from models.verification.rule import Candidate, Randomness, Rule

SEEDS = range(300)
LOSSY = ("typical", "adasd")
P = (0.5, 0.3, 0.15, 0.05)
"""Its entropy is 1.1421 nats, and exp(-1.1421) = 0.31914."""


def row_of(p: Sequence[float], shown: int = 2) -> HostRow:
    return host_row(np.log(np.array(p)).astype(np.float32), shown)


def target_of(p: Sequence[float]) -> Distribution:
    return Distribution(np.arange(len(p)), np.array(p, dtype=np.float64))


def sampler(seed: int) -> Sampler:
    return Sampler(Sampling(temperature=1.0, seed=seed), prompt=())


def drawn(p: Sequence[float], seed: int) -> int:
    """The target's own token: what is drawn without a draft."""
    return accept(Draft(), HostRows([row_of(p)]), sampler(seed), make_rule("coupled")).bonus


def first_round(rule: Rule, tokens: tuple[int, ...], seed: int) -> Outcome:
    """Of siblings behind P; a certain 0 follows each."""
    end = row_of((1 - 3e-9, 1e-9, 1e-9, 1e-9))
    draft = Draft(tokens, parents=(-1,) * len(tokens))
    return accept(draft, HostRows([row_of(P), *[end] * len(tokens)]), sampler(seed), rule)


@pytest.mark.parametrize(
    ("epsilon", "delta", "accepted"),
    [
        # min(0.09, 0.3 * 0.31914 = 0.0957)
        (0.09, 0.3, {0, 1, 2}),
        # min(0.9, 0.0957)
        (0.9, 0.3, {0, 1, 2}),
        # min(0.9, 0.6 * 0.31914 = 0.1915)
        (0.9, 0.6, {0, 1}),
        # min(0.2, 0.31914)
        (0.2, 1.0, {0, 1}),
        # min(0.04, 0.0957)
        (0.04, 0.3, {0, 1, 2, 3}),
        # min(0.9, 2 * 0.31914 = 0.638): nothing but the target's own draw
        (0.9, 2.0, set()),
    ],
)
def test_typical_accepts_above_the_lesser_threshold(
    epsilon: float, delta: float, accepted: set[int]
) -> None:
    for token in range(4):
        for seed in SEEDS:
            rule = make_rule("typical", epsilon=epsilon, delta=delta)
            outcome = first_round(rule, (token,), seed)
            own = drawn(P, seed)
            if token in accepted or token == own:
                assert outcome == Outcome((0,), 0)
            else:
                assert outcome == Outcome((), own)


def test_typical_takes_the_first_sibling_that_passes() -> None:
    rule = make_rule("typical", epsilon=0.2, delta=1.0)
    for seed in SEEDS:
        expected = 0 if drawn(P, seed) == 3 else 1
        assert first_round(rule, (3, 1, 0), seed).path == (expected,)


def test_typical_asks_less_of_an_undecided_target() -> None:
    # Uniform over four: H = log 4, so 0.3 / 4 = 0.075. Nearly sure: about 0.3 * 0.9.
    flat, sure = target_of((0.25,) * 4), target_of((0.98, 0.014, 0.003, 0.003))
    rule = make_rule("typical", epsilon=0.09, delta=0.3)
    candidate = Candidate(0, 1, None)
    for seed in SEEDS:
        randomness = Randomness(seed, 0)
        assert rule.choose(flat, [candidate], randomness).child == 0
        own = sure.draw(randomness.token())
        assert rule.choose(sure, [candidate], randomness).child == (0 if own == 1 else None)


@pytest.mark.parametrize("name", LOSSY)
def test_the_targets_own_draw_is_always_accepted_and_ends_what_is_not(name: str) -> None:
    rule = make_rule(name)
    for seed in SEEDS:
        own = drawn(P, seed)
        assert first_round(rule, (own,), seed).path == (0,)
        rare = first_round(rule, (3,), seed)
        assert rare.path or rare.bonus == own
        assert accept(Draft(), HostRows([row_of(P)]), sampler(seed), rule).bonus == own


def entropy(p: NDArray[np.float64]) -> float:
    return -sum(x * math.log2(x) for x in p.tolist() if x > 0)


def test_the_distance_is_the_root_of_the_jensen_shannon_divergence() -> None:
    """H((p + q) / 2) - (H(p) + H(q)) / 2 in bits, another form of the same."""
    noise = np.random.default_rng(0)
    for size in (2, 5, 30):
        for _ in range(20):
            p = noise.dirichlet(np.full(size, 0.5))
            ids = np.sort(noise.choice(size, size=int(noise.integers(1, size + 1)), replace=False))
            q = np.zeros(size)
            q[ids] = noise.dirichlet(np.ones(ids.size))
            divergence = entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2
            found = jensen_shannon_distance(target_of(p.tolist()), Proposal(ids, q[ids]))
            assert found == pytest.approx(math.sqrt(max(0.0, divergence)), abs=1e-7)


@pytest.mark.parametrize(
    ("p", "q", "distance"),
    [
        ((0.5, 0.5), (0.5, 0.5), 0.0),
        ((1.0, 0.0), (0.0, 1.0), 1.0),
        # H(3/4, 1/4) - 1/2 = 0.311278
        ((1.0, 0.0), (0.5, 0.5), 0.557923),
        # p twice as wide as q: H(3/8, 3/8, 1/8, 1/8) - (2 + 1) / 2
        ((0.25, 0.25, 0.25, 0.25), (0.5, 0.5, 0.0, 0.0), math.sqrt(1.811278 - 1.5)),
    ],
)
def test_distances_by_hand(p: tuple[float, ...], q: tuple[float, ...], distance: float) -> None:
    ids = np.flatnonzero(np.array(q))
    proposal = Proposal(ids, np.array(q)[ids])
    assert jensen_shannon_distance(target_of(p), proposal) == pytest.approx(distance, abs=1e-6)


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_the_distance_of_a_one_hot_draft_depends_on_p_of_it_alone(p: float) -> None:
    rest = (1 - p) / 2
    own = p * math.log2(2 * p / (1 + p)) if p else 0.0
    divergence = (own + (1 - p) + math.log2(2 / (1 + p))) / 2
    found = jensen_shannon_distance(target_of((rest, p, rest)), Proposal.single(1))
    assert found == pytest.approx(math.sqrt(max(0.0, divergence)), abs=1e-7)


def test_a_midpoint_lies_halfway_between_the_means() -> None:
    middle = Midpoint()
    middle.note(0.2, agreed=True)
    middle.note(0.4, agreed=True)
    assert middle.value is None
    middle.note(0.9, agreed=False)
    assert middle.value == pytest.approx((0.3 + 0.9) / 2)
    middle.note(0.5, agreed=False)
    assert middle.value == pytest.approx((0.3 + 0.7) / 2)


def judged(rule: AdaSD, p: Sequence[float], token: int, own: int) -> bool:
    """Whether `token`, a one-hot draft, is accepted where the target's own draw is `own`."""
    target = target_of(p)
    seed = next(s for s in range(10_000) if target.draw(Randomness(s, 0).token()) == own)
    return rule.choose(target, [Candidate(0, token, None)], Randomness(seed, 0)).child == 0


def test_adasd_accepts_what_is_closer_than_halfway() -> None:
    def distance(p: Sequence[float], token: int) -> float:
        return jensen_shannon_distance(target_of(p), Proposal.single(token))

    near, middling, far = (0.8, 0.2), (0.55, 0.45), (0.2, 0.8)
    rule = AdaSD()
    # Nothing has been seen, then only agreement: the target's own draw alone is accepted.
    assert not judged(AdaSD(), near, 0, own=1)
    assert judged(rule, near, 0, own=0)
    assert rule.distance.value is None
    assert not judged(rule, far, 0, own=1)
    threshold = (distance(near, 0) + distance(far, 0)) / 2
    assert rule.distance.value == pytest.approx(threshold)
    assert distance(middling, 0) < threshold < distance((0.4, 0.6), 0)
    assert judged(rule, middling, 0, own=1)
    # It was not the target's own draw, so it counts with those that were not.
    rejected = (distance(far, 0) + distance(middling, 0)) / 2
    assert rule.distance.value == pytest.approx((distance(near, 0) + rejected) / 2)
    assert not judged(rule, far, 0, own=1)


def test_adasd_learns_for_one_request_only() -> None:
    first, second = make_rule("adasd"), make_rule("adasd")
    assert isinstance(first, AdaSD)
    assert isinstance(second, AdaSD)
    judged(first, (0.8, 0.2), 0, own=0)
    assert first.distance.counts == [0, 1]
    assert second.distance.counts == [0, 0]


def flat(count: int) -> Proposal:
    return Proposal(np.arange(count), np.full(count, 1 / count))


def test_adasd_stops_a_draft_at_the_first_undecided_token() -> None:
    rule = AdaSD()
    draft = Draft((1, 0, 2, 0), proposals=(flat(8), flat(2), flat(4), flat(1)), source="model")
    assert rule.trim(draft) is draft
    rule.entropy.note(math.log(2), agreed=True)
    rule.entropy.note(math.log(8), agreed=False)
    # The threshold is log 4: not more than it is kept, and the first token always.
    assert rule.trim(draft) is draft
    rule.entropy.note(math.log(2), agreed=False)
    trimmed = rule.trim(draft)
    assert trimmed == Draft((1, 0), proposals=draft.proposals[:2], source="model")  # type: ignore[index]


def test_adasd_leaves_trees_and_certain_drafts_whole() -> None:
    rule = AdaSD()
    rule.entropy.note(0.0, agreed=True)
    rule.entropy.note(0.1, agreed=False)
    tree = Draft((1, 0), parents=(-1, -1), proposals=(flat(4), flat(4)))
    for draft in (tree, Draft((1, 2)), Draft()):
        assert rule.trim(draft) is draft
    assert rule.trim(Draft((1, 0), proposals=(flat(4), flat(4)))).tokens == (1,)


def test_adasd_notes_entropies_in_nats() -> None:
    rule = AdaSD()
    target = target_of((0.25,) * 4)
    for seed in range(50):
        rule.choose(target, [Candidate(0, 1, flat(4))], Randomness(seed, 0))
    assert rule.entropy.value == pytest.approx(math.log(4))
    # p and q are the same, so everything is close.
    assert rule.distance.value == pytest.approx(0, abs=1e-7)
