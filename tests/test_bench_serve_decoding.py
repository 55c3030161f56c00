"""Which answers count as decoded within a phase, and what their times are compared with."""

from __future__ import annotations

import pytest

from bench.client import WireAnswer
from bench.prompts import Question
from bench.run.schema import Absent, Interval, Quantity
from bench.serve.decoding import Decoded, cached_of, decoded_of, pairs_of, tpot_of, tpot_ratio
from tests.bench_serve_support import decoded

QUESTION = Question("a", "all", ("say a",))


def answer(first: float | None, last: float | None, tokens: int = 11) -> WireAnswer:
    """One token came with the first arrival."""
    return WireAnswer(
        id="1",
        text="text",
        ids=(),
        usage={
            "input_tokens": 20,
            "output_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 5},
        },
        timings={},
        sent=0.0,
        first=first,
        last=last,
        first_tokens=1,
    )


def test_an_answer_counts_whose_arrivals_all_lie_within_the_phase() -> None:
    within = decoded_of(QUESTION, answer(1.0, 2.0), 1.0, 2.0)
    assert within == Decoded("a", pytest.approx(100.0), 20, 5)


@pytest.mark.parametrize(
    "outside",
    [answer(0.9, 2.0), answer(1.0, 2.1), answer(None, None, 0), answer(1.0, 1.5, tokens=7)],
)
def test_no_other_answer_counts(outside: WireAnswer) -> None:
    assert decoded_of(QUESTION, outside, 1.0, 2.0) is None


def test_prompts_are_paired_where_both_decoded_them_in_the_same_repeat() -> None:
    own = [
        [decoded("a", 4.0), decoded("b", 30.0)],
        [decoded("a", 6.0), decoded("c", 9.0), decoded("c", 11.0)],
        [decoded("a", 500.0)],
    ]
    off = [[decoded("a", 9.0)], [decoded("c", 20.0), decoded("a", 11.0)], [decoded("b", 1.0)]]
    assert pairs_of(own, off) == [(5.0, 10.0), (10.0, 20.0)]


def test_a_slower_prompt_is_slower_under_both_and_leaves_the_ratio_alone() -> None:
    off = [[decoded(str(n), 10.0 * n) for n in range(1, 9)]]
    own = [[decoded(str(n), 9.0 * n) for n in range(1, 9)]]
    ratio, interval = tpot_ratio(own, off, 0)
    assert isinstance(ratio, Quantity)
    assert isinstance(interval, Interval)
    assert (ratio.value, ratio.unit, interval.prompts) == (pytest.approx(0.9), "of off", 8)
    assert (interval.low, interval.high) == (pytest.approx(0.9), pytest.approx(0.9))


def test_what_cannot_be_told_has_a_word() -> None:
    one, other = [[decoded("a", 4.0)]], [[decoded("b", 4.0)]]
    for figure in (tpot_of([[]]), cached_of([]), *tpot_ratio(one, other, 0)):
        assert isinstance(figure, Absent)
        assert figure.absent == "missing"
    ratio, interval = tpot_ratio(one, one, 0)
    assert ratio == Quantity(1.0, "of off")
    assert interval == Absent("missing", "one prompt has no spread")
    for figure in tpot_ratio(one, None, 0):
        assert isinstance(figure, Absent)
        assert figure.absent == "not_comparable"
    assert tpot_of([[decoded("a", 4.0), decoded("b", 5.0)], [decoded("a", 9.0)]]) == Quantity(
        5.0, "ms"
    )
