"""Verification on small distributions worked out by hand: the walk, and the lossless rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.goodness import p_value
from bench.rows import HostRow, HostRows, host_row
from bench.tiny_model import RowsBehind, random_model
from gateway.engine.scoring import RowsFrom
from models.draft import Draft, Proposal
from models.rows import RowResult
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.verification import Outcome, accept, make_rule

SEEDS = range(2000)
LOSSLESS = ("coupled", "classic")
TOKENS = st.integers(0, 2)
P, Q = (0.5, 0.3, 0.2), (0.2, 0.5, 0.3)


def row_of(p: Sequence[float]) -> HostRow:
    """A row whose probabilities are `p`; the host sees all but one token of it."""
    with np.errstate(divide="ignore"):
        return host_row(np.log(np.array(p)).clip(-50).astype(np.float32), max(1, len(p) - 1))


def certain(token: int, size: int = 10) -> HostRow:
    return row_of([float(place == token) for place in range(size)])


def rows_of(*rows: HostRow) -> HostRows:
    return HostRows(rows)


def sampler(seed: int = 0, prompt: Sequence[int] = (), **parameters: float) -> Sampler:
    return Sampler(Sampling(**{"temperature": 1.0, **parameters}, seed=seed), prompt)  # type: ignore[arg-type]


def q_of(q: Sequence[float]) -> Proposal:
    return Proposal(np.arange(len(q)), np.array(q))


def near(count: int, probability: float, trials: int = len(SEEDS)) -> bool:
    """Within five standard deviations."""
    deviation = (trials * probability * (1 - probability)) ** 0.5
    return abs(count - trials * probability) <= 5 * deviation


@dataclass
class RecordingRows:
    rows: HostRows
    asked: list[int] = field(default_factory=list)

    def row(self, index: int) -> HostRow:
        self.asked.append(index)
        return self.rows.row(index)


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("draft", "target", "accepted", "bonus"),
    [
        ((), (7,), 0, 7),
        ((1, 2, 3), (1, 2, 3, 4), 3, 4),
        ((1, 2, 3), (9, 2, 3, 4), 0, 9),
        ((1, 2, 3), (1, 9, 3, 4), 1, 9),
        # The last candidate rejected: the correction comes from its own row, not the one behind.
        ((1, 2, 3), (1, 2, 9, 4), 2, 9),
    ],
)
def test_a_chain_is_accepted_as_far_as_the_target_goes(
    rule: str,
    temperature: float,
    draft: tuple[int, ...],
    target: tuple[int, ...],
    accepted: int,
    bonus: int,
) -> None:
    """openvino.genai#4190: rejection of the last candidate was off by one, a word dropped."""
    rows = RecordingRows(rows_of(*map(certain, target)))
    outcome = accept(Draft(draft), rows, sampler(temperature=temperature), make_rule(rule))
    assert outcome == Outcome(tuple(range(accepted)), bonus)
    assert outcome.accepted == accepted
    assert outcome.tokens(draft) == (*target[:accepted], bonus)
    # What is not reached is not even looked at.
    assert rows.asked == list(range(accepted + 1))


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize(
    ("targets", "path", "bonus"),
    [
        ({0: 9}, (), 9),
        ({0: 1, 1: 3, 3: 8}, (0, 2), 8),
        ({0: 1, 1: 9}, (0,), 9),
        ({0: 2, 2: 4, 5: 6}, (1, 4), 6),
        ({0: 2, 2: 3, 4: 5, 6: 7}, (1, 3, 5), 7),
        ({0: 2, 2: 9}, (1,), 9),
    ],
)
def test_a_tree_is_walked_along_the_target(
    rule: str, targets: dict[int, int], path: tuple[int, ...], bonus: int
) -> None:
    #  root - 1 - 3;  root - 2 - 3 - 5;  root - 2 - 4
    draft = Draft((1, 2, 3, 3, 4, 5), parents=(-1, -1, 0, 1, 1, 3))
    rows = RecordingRows(rows_of(*(certain(targets.get(index, 0)) for index in range(7))))
    outcome = accept(draft, rows, sampler(), make_rule(rule))
    assert outcome == Outcome(path, bonus)
    assert rows.asked == list(targets)
    assert outcome.tokens(draft.tokens) == (*(draft.tokens[index] for index in path), bonus)


@given(st.lists(TOKENS, max_size=8), st.data())
def test_every_token_of_a_greedy_round_is_the_targets(
    draft: list[int], data: st.DataObject
) -> None:
    target = data.draw(st.lists(TOKENS, min_size=len(draft) + 1, max_size=len(draft) + 1))
    rows = rows_of(*(certain(token) for token in target))
    outcome = accept(Draft(tuple(draft)), rows, sampler(temperature=0), make_rule("coupled"))
    tokens = outcome.tokens(draft)
    assert list(tokens) == target[: len(tokens)]
    assert len(tokens) == outcome.accepted + 1
    # Nothing acceptable was left behind.
    assert outcome.accepted == len(draft) or draft[outcome.accepted] != target[outcome.accepted]


@pytest.mark.parametrize("token", [0, 1, 2])
def test_a_sampled_draft_is_accepted_with_p_over_q(token: int) -> None:
    draft = Draft((token,), proposals=(q_of(Q),))
    rows = rows_of(row_of(P), certain(9))
    outcomes = [accept(draft, rows, sampler(seed), make_rule("classic")) for seed in SEEDS]
    assert near(sum(outcome.accepted for outcome in outcomes), min(1, P[token] / Q[token]))
    # What replaces it is of max(0, p - q) = (0.3, 0, 0); what follows it of the next row.
    assert {outcome.bonus for outcome in outcomes if not outcome.accepted} <= {0}
    assert {outcome.bonus for outcome in outcomes if outcome.accepted} == {9}


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("token", [0, 1, 2])
def test_a_one_hot_draft_is_accepted_with_p(rule: str, token: int) -> None:
    """ml-recurrent-drafter#6, jaymody/speculative-sampling#3: it was treated as a sample."""
    rows = rows_of(row_of(P), certain(2, 3))
    outcomes = [accept(Draft((token,)), rows, sampler(seed), make_rule(rule)) for seed in SEEDS]
    assert near(sum(outcome.accepted for outcome in outcomes), P[token])
    rejected = [outcome.bonus for outcome in outcomes if not outcome.accepted]
    rest = np.array([0.0 if place == token else p for place, p in enumerate(P)])
    assert p_value(np.bincount(rejected, minlength=3), rest / rest.sum()) > 1e-4


def test_siblings_are_tried_against_what_the_ones_before_left() -> None:
    """Two one-hot siblings: the second is accepted with p(x) of all that is left of p."""
    draft = Draft((1, 2), parents=(-1, -1))
    rows = rows_of(row_of(P), certain(0, 3), certain(0, 3))
    outcomes = [accept(draft, rows, sampler(seed), make_rule("classic")) for seed in SEEDS]
    paths = [outcome.path for outcome in outcomes]
    assert near(paths.count((0,)), 0.3)
    assert near(paths.count((1,)), 0.2)
    assert {outcome.bonus for outcome in outcomes if not outcome.path} == {0}


def test_sampled_siblings_leave_residuals_by_hand() -> None:
    # Of p, q leaves (0.3, 0, 0): after a rejection the second sibling is certainly accepted if it
    # is token 0, and never otherwise, whatever its own q was.
    given_first = Proposal(np.array([0, 2]), np.array([0.4, 0.6]))
    rows = rows_of(row_of(P), certain(1, 3), certain(1, 3))
    for second, path in ((0, (1,)), (2, ())):
        draft = Draft((1, second), (-1, -1), proposals=(q_of(Q), given_first))
        outcomes = [accept(draft, rows, sampler(seed), make_rule("classic")) for seed in SEEDS]
        paths = [outcome.path for outcome in outcomes]
        assert near(paths.count((0,)), 0.6)
        assert {found for found in paths if found != (0,)} == {path}


def test_q_is_what_the_draft_was_drawn_from() -> None:
    """transformers#47932, DeepSpec#31: the q of acceptance was not the q that was sampled."""
    parameters = {"temperature": 0.7, "top_k": 4, "repetition_penalty": 1.5, "min_p": 0.02}
    row = host_row(np.random.default_rng(0).normal(0, 1.5, 12).astype(np.float32), 6)
    counts, proposals = np.zeros(12, dtype=np.int64), list[Proposal]()
    for seed in SEEDS:
        drawer = sampler(seed, (3, 5), **parameters)
        token, proposal = drawer.draft(row, (5,), shared=False)
        counts[token] += 1
        proposals.append(proposal)
    processed = sampler(0, (3, 5), **parameters).distribution(row, (5,)).dense(12)
    q = np.zeros(12)
    q[proposals[0].ids] = proposals[0].probabilities
    assert q == pytest.approx(processed, abs=1e-7)
    assert p_value(counts, q) > 1e-4
    assert len({(p.ids.tobytes(), p.probabilities.tobytes()) for p in proposals}) == 1
    assert proposals[0].probabilities.dtype == np.float64
    assert proposals[0].probabilities.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize(
    "parameters", [{"logit_bias": ((0, -100.0),)}, {"min_p": 0.7}, {"top_k": 1}, {"top_p": 0.3}]
)
def test_every_row_goes_through_the_same_processors(
    rule: str, parameters: dict[str, float]
) -> None:
    """vllm#42744: min_p and logit_bias reached the bonus token only."""
    probabilities = {"logit_bias": (0.45, 0.35, 0.2), "min_p": (0.25, 0.45, 0.3)}
    row = row_of(probabilities.get(next(iter(parameters)), (0.2, 0.45, 0.35)))
    for seed in range(200):
        for length in range(4):
            # Token 0 is forbidden at every place; token 1 stands before it.
            draft = Draft((1,) * length + (0,))
            own = sampler(seed, **parameters)
            outcome = accept(draft, rows_of(*[row] * 5), own, make_rule(rule))
            assert outcome.accepted <= length
            assert outcome.bonus != 0


def test_penalties_count_the_drafts_ahead_of_a_row() -> None:
    """sglang#33643, #28200, vllm#33251: each draft token once, for the rows behind it."""
    row = row_of((0.6, 0.3, 0.1))
    penalised = sampler(frequency_penalty=2.0, temperature=0)
    # Logits -0.5, -1.2 and -2.3; every token that comes loses 2.
    draft = (0, 1, 2, 0)
    outcome = accept(Draft(draft), rows_of(*[row] * 5), penalised, make_rule("coupled"))
    assert outcome.tokens(draft) == (0, 1, 2, 0, 1)
    outcome = accept(Draft((0, 1, 0)), rows_of(*[row] * 4), penalised, make_rule("coupled"))
    assert outcome == Outcome((0, 1), 2)
    behind = sampler(frequency_penalty=0.5).distribution(row, (0, 0, 1)).dense(3)
    weights = np.array([0.6 * np.exp(-1), 0.3 * np.exp(-0.5), 0.1])
    assert behind == pytest.approx(weights / weights.sum(), abs=1e-6)
    # Nothing of a draft stays, only what is committed.
    assert accept(Draft(), rows_of(row), penalised, make_rule("coupled")).bonus == 0
    penalised.commit((0,))
    assert accept(Draft(), rows_of(row), penalised, make_rule("coupled")).bonus == 1


def test_an_answer_cannot_end_before_its_least_length() -> None:
    """Drafts count towards it like committed tokens."""
    row, end = row_of((0.01, 0.01, 0.98)), 2
    for seed in range(50):
        own = Sampler(Sampling(temperature=1.0, min_tokens=2, seed=seed), (), endings=(end,))
        for rule in map(make_rule, LOSSLESS):
            first = accept(Draft((end,)), rows_of(row, row), own, rule)
            assert first.accepted == 0
            assert first.bonus != end
            second = accept(Draft((first.bonus, end)), rows_of(row, row, row), own, rule)
            assert second.accepted <= 1
            assert second.bonus != end
    own.commit((0, 1))
    assert own.distribution(row).probability(end) == pytest.approx(0.98)
    assert accept(Draft((end,)), rows_of(row, row), own, make_rule("coupled")).accepted == 1


def test_a_seed_gives_the_same_round_and_another_seed_another() -> None:
    """vllm#6038, TRT-LLM#17599: the seed was ignored."""
    row = row_of((0.25,) * 4)
    draft, rows = Draft((0, 1, 2)), rows_of(*[row] * 4)
    for rule in LOSSLESS:
        rounds = [accept(draft, rows, sampler(seed), make_rule(rule)) for seed in range(200)]
        again = [accept(draft, rows, sampler(seed), make_rule(rule)) for seed in range(200)]
        assert rounds == again
        counts = np.bincount([outcome.tokens(draft.tokens)[0] for outcome in rounds], minlength=4)
        assert p_value(counts, np.full(4, 0.25)) > 1e-4


def test_requests_do_not_share_random_numbers() -> None:
    """One stream per request: whatever others do in between changes nothing."""
    row = row_of((0.25,) * 4)

    def answer(own: Sampler, others: Sequence[Sampler]) -> list[int]:
        tokens = list[int]()
        for _ in range(20):
            for other in others:
                other.commit((accept(Draft(), rows_of(row), other, make_rule("coupled")).bonus,))
            tokens.append(accept(Draft(), rows_of(row), own, make_rule("coupled")).bonus)
            own.commit(tokens[-1:])
        return tokens

    alone = answer(sampler(1), ())
    assert answer(sampler(1), (sampler(2), sampler(3))) == alone
    assert answer(sampler(2), ()) != alone
    # The position is absolute: behind a longer prompt come other numbers.
    assert answer(sampler(1, prompt=(0, 0)), ())[:18] == alone[2:]


PARAMETERS: list[dict[str, float]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.6, "top_p": 0.8},
    {"temperature": 1.5, "top_k": 7, "min_p": 0.05},
    {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_coupled_answers_are_those_without_drafts(parameters: dict[str, float]) -> None:
    """llama.cpp#25618, mlx-lm#1470. Whatever is drafted, the same seed gives the same answer."""
    accepted = 0
    for case in range(25):
        noise, model = np.random.default_rng(case), random_model(case)
        plain = plain_answer(case, parameters, 14)
        answer = list[int]()
        own, rule = sampler(case, (1, 2), **parameters), make_rule("coupled")
        while len(answer) < len(plain):
            draft = random_draft(noise, plain[len(answer) :])
            outcome = accept(draft, RowsBehind(model, tuple(answer), draft), own, rule)
            tokens = outcome.tokens(draft.tokens)
            own.commit(tokens)
            answer += tokens
            accepted += outcome.accepted
        assert answer[: len(plain)] == plain
    assert accepted > 100


def plain_answer(case: int, parameters: dict[str, float], length: int) -> list[int]:
    model, own, answer = random_model(case), sampler(case, (1, 2), **parameters), list[int]()
    for _ in range(length):
        rows = RowsBehind(model, tuple(answer), Draft())
        answer.append(accept(Draft(), rows, own, make_rule("coupled")).bonus)
        own.commit(answer[-1:])
    return answer


def random_draft(noise: np.random.Generator, ahead: Sequence[int]) -> Draft:
    """A random tree, half of it along the right continuation `ahead`."""
    tokens, parents = list[int](), list[int]()
    paths: list[tuple[int, ...]] = [()]
    for _ in range(int(noise.integers(0, 9))):
        parent = int(noise.integers(0, len(paths)))
        path = paths[parent]
        right = len(path) < len(ahead) and list(path) == list(ahead[: len(path)])
        token = ahead[len(path)] if right and noise.random() < 0.7 else int(noise.integers(0, 12))
        if (*path, token) not in paths:
            tokens.append(token)
            parents.append(parent - 1)
            paths.append((*path, token))
    return Draft(tuple(tokens), tuple(parents))


def agreement(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    terms = [
        1 / sum(max(p[y] / p[x], q[y] / q[x]) for y in range(len(p)))
        for x in range(len(p))
        if p[x] > 0 and q[x] > 0
    ]
    return float(sum(terms))


def test_drafts_with_shared_noise_agree_as_often_as_the_paper_says() -> None:
    p, q = row_of((0.5, 0.3, 0.15, 0.05)), row_of((0.2, 0.5, 0.1, 0.2))
    own = sampler(top_k=3)
    tables = [own.distribution(row).dense(4) for row in (p, q)]
    expected = agreement(*tables)
    variation = float(np.abs(tables[0] - tables[1]).sum()) / 2
    assert (1 - variation) / (1 + variation) <= expected <= 1 - variation
    shared = independent = 0
    for seed in SEEDS:
        own = sampler(seed, top_k=3)
        rows = rows_of(p, certain(0, 4))
        for choice in (True, False):
            token, proposal = own.draft(q, (), shared=choice)
            draft = Draft((token,), proposals=(proposal,))
            accepted = accept(draft, rows, own, make_rule("coupled")).accepted
            shared += accepted * choice
            independent += accepted * (not choice)
    assert near(shared, expected)
    assert near(independent, float((tables[0] * tables[1]).sum()))


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.7, 1.0])
def test_synthetic_accepts_at_its_rate_whatever_is_drafted(acceptance: float) -> None:
    rows, rule = rows_of(*[certain(9)] * 4), make_rule("synthetic", acceptance=acceptance)
    outcomes = [accept(Draft((1, 2, 3)), rows, sampler(seed), rule) for seed in SEEDS]
    lengths = np.bincount([outcome.accepted for outcome in outcomes], minlength=4)
    expected = np.array([acceptance**n * (1 - acceptance if n < 3 else 1) for n in range(4)])
    assert p_value(lengths, expected) > 1e-4
    # What ends a round is the target's own.
    assert {outcome.bonus for outcome in outcomes} == {9}


def test_only_adasd_trims() -> None:
    draft = Draft((1, 2), proposals=(q_of((0.25,) * 4),) * 2)
    for name in ("coupled", "classic", "typical", "synthetic"):
        assert make_rule(name).trim(draft) is draft


@given(
    st.lists(TOKENS, max_size=6),
    st.lists(TOKENS, min_size=7, max_size=7),
    st.sampled_from(["coupled", "classic"]),
)
def test_what_a_run_gives_is_followed_as_the_walk_would(
    drafted: list[int], likeliest: list[int], rule: str
) -> None:
    """Greedy chains are read off the ids of a run; any other rows are walked."""
    ids = np.array([[token, (token + 1) % 3] for token in likeliest[: 1 + len(drafted)]])
    values = np.tile(np.float32([2.0, 1.0]), (len(ids), 1))
    result = RowResult(values, ids, np.full(len(ids), 2.5, np.float32))
    draft, greedy = Draft(tuple(drafted), source="any"), Sampler(Sampling(), (1, 2))
    chosen = make_rule(rule)  # type: ignore[arg-type]
    read, walked = (accept(draft, rows, greedy, chosen) for rows in (result, RowsFrom(result, 0)))
    assert read == walked
    assert read.bonus == likeliest[read.accepted]
    assert tuple(drafted[: read.accepted]) == tuple(likeliest[: read.accepted])
