"""How samples become figures and promises."""

from __future__ import annotations

import pytest

from bench.client import WireAnswer
from bench.drafting import parse_lengths
from bench.prompts import Question
from bench.speed import FEWEST_TOKENS, NEVER_SLOWER, REPEATING, Sample, _repeating, evaluate
from models.errors import UserError

SETTINGS = parse_lengths("0,auto")


def sample(question: str, category: str, setting: str, tpot: float | None, **more: int) -> Sample:
    return Sample(
        question=question,
        category=category,
        setting=setting,
        repeat=more.get("repeat", 0),
        ids=(more.get("token", 7),) * 10,
        tpot_ms=tpot,
        server_tpot_ms=tpot,
        rounds=more.get("rounds", 9),
        tau=None,
        draft_n=more.get("draft_n", 0),
        draft_n_accepted=more.get("accepted", 0),
    )


def test_a_category_is_the_mean_over_prompts_of_medians_over_repeats() -> None:
    samples = [
        *(sample("1", "qa", "off", value) for value in (10.0, 12.0, 90.0)),
        sample("2", "qa", "off", 20.0),
        sample("1", "qa", "auto", 6.0, rounds=5, draft_n=8, accepted=5),
        sample("2", "qa", "auto", 10.0, rounds=5, draft_n=2, accepted=0),
    ]
    off, auto = evaluate(samples, SETTINGS, frozenset()).figures["cells"]
    assert off["tpot_ms"] == 16.0
    assert off["ratio"] == 1.0
    assert off["alpha"] is None
    assert auto["tpot_ms"] == 8.0
    assert auto["ratio"] == 0.5
    assert auto["tau"] == 1.5
    assert auto["alpha"] == 0.5
    assert auto["prompts"] == 2


@pytest.mark.parametrize(
    ("auto", "repeating", "held"),
    [
        (10.0 * NEVER_SLOWER - 0.1, False, True),
        (10.0 * NEVER_SLOWER + 0.1, False, False),
        (10.0 * REPEATING - 0.1, True, True),
        (10.0 * REPEATING + 0.1, True, False),
    ],
)
def test_auto_is_promised_by_category(auto: float, repeating: bool, held: bool) -> None:
    samples = [sample("1", "edit", "off", 10.0), sample("1", "edit", "auto", auto)]
    found = evaluate(samples, SETTINGS, frozenset({"edit"} if repeating else ()))
    assert found.held is held
    assert [promise.held for promise in found.promises] == [True, held]


def test_an_answer_that_differs_breaks_a_promise() -> None:
    samples = [sample("1", "qa", "off", 10.0), sample("1", "qa", "auto", 5.0, token=8)]
    found = evaluate(samples, SETTINGS, frozenset())
    assert found.figures["different"] == ["1"]
    assert not found.held


def test_a_category_of_short_answers_is_not_timed_and_said_so() -> None:
    samples = [
        *(sample("1", "qa", name, None) for name in ("off", "auto")),
        *(sample("2", "rag", name, 9.0) for name in ("off", "auto")),
    ]
    found = evaluate(samples, SETTINGS, frozenset())
    assert found.figures["too_short"] == ["1"]
    promises = {promise.name: promise.status for promise in found.promises}
    assert promises["qa: auto / off"] == "not applicable"
    assert promises["rag: auto / off"] == "held"
    assert found.tables[0].rows == [("1",)]


def test_repeating_categories_are_those_present_or_those_named() -> None:
    questions = [Question("1", "edit", ("a",)), Question("2", "qa", ("a",))]
    assert _repeating(None, questions) == {"edit"}
    assert _repeating("qa, edit", questions) == {"qa", "edit"}
    with pytest.raises(UserError, match="--repeating names rag"):
        _repeating("rag,qa", questions)


def answer(tokens: int, first: float | None, last: float | None, first_tokens: int) -> WireAnswer:
    usage = {"output_tokens": tokens, "input_tokens": 3, "input_tokens_details": {}}
    return WireAnswer("r", "", (), usage, {}, 1.0, first, last, first_tokens)


def test_the_client_divides_by_the_tokens_behind_the_first_delta() -> None:
    assert answer(11, 1.5, 2.5, 1).tpot_ms == pytest.approx(100.0)
    assert answer(14, 1.5, 2.5, 4).tpot_ms == pytest.approx(100.0)
    assert answer(11, 1.5, 2.5, 1).ttft_ms == pytest.approx(500.0)
    assert answer(1, 1.5, 1.5, 1).tpot_ms is None
    assert answer(0, None, None, 1).tpot_ms is None
    assert answer(0, None, None, 1).ttft_ms is None
    assert FEWEST_TOKENS > 2
