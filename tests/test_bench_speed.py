"""How samples become figures and promises."""

from __future__ import annotations

from typing import Any

import pytest

from bench.cells import Sample
from bench.client import GatewayError, WireAnswer, sampling_fields
from bench.drafting import Setting, parse_lengths, settings_for
from bench.prompts import Question
from bench.report import Findings
from bench.speed import FEWEST_TOKENS, NEVER_SLOWER, REPEATING, _repeating, check_rule, evaluate
from models.errors import UserError
from models.sampling.parameters import Sampling


def settings(lengths: str, rules: str = "coupled", branches: int = 1) -> list[Setting]:
    return settings_for(parse_lengths(lengths), rules.split(","), branches)


SETTINGS = settings("0,auto")


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
        tau=more.get("tau", 0) or None,
        draft_n=more.get("draft_n", 0),
        draft_n_accepted=more.get("accepted", 0),
        lossless=not more.get("lossy", 0),
        exact=True,
    )


def status_of(found: Findings) -> dict[str, str]:
    return {promise.name: promise.status for promise in found.promises}


def test_a_category_is_the_mean_over_prompts_of_medians_over_repeats() -> None:
    samples = [
        *(sample("1", "qa", "off", value) for value in (10.0, 12.0, 90.0)),
        sample("2", "qa", "off", 20.0),
        sample("1", "qa", "auto", 6.0, rounds=5, tau=2, draft_n=8, accepted=5),
        sample("2", "qa", "auto", 10.0, rounds=15, tau=1, draft_n=2, accepted=0),
    ]
    off, auto = evaluate(samples, SETTINGS, frozenset()).figures["cells"]
    assert off["tpot_ms"] == 16.0
    assert off["ratio"] == 1.0
    assert off["alpha"] is None
    assert auto["tpot_ms"] == 8.0
    assert auto["ratio"] == 0.5
    assert auto["tau"] == 1.25
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
    assert status_of(found)["qa: auto / off"] == "not measured"
    assert status_of(found)["rag: auto / off"] == "held"
    assert found.tables[0].rows == [("1",)]


def test_a_ratio_is_over_the_prompts_that_both_settings_timed() -> None:
    samples = [
        sample("1", "qa", "off", 10.0),
        sample("2", "qa", "off", 90.0),
        sample("1", "qa", "auto typical", 5.0, lossy=1),
        sample("2", "qa", "auto typical", None, lossy=1),
    ]
    _, typical = evaluate(samples, settings("0,auto", "typical"), frozenset()).figures["cells"]
    assert typical["prompts"] == 1
    assert typical["tpot_ms"] == 5.0
    assert typical["ratio"] == 0.5


RULES = "coupled,classic,typical,synthetic"


def under_rules(lengths: str, branches: int, **tokens: int) -> Findings:
    """Two prompts in four settings; each rule answers the second one with its own token."""
    samples: list[Sample] = []
    for question in ("1", "2"):
        samples.append(sample(question, "qa", "off", 10.0))
        samples.append(sample(question, "qa", "auto", 9.0, token=tokens.get("coupled", 7)))
        for rule in RULES.split(",")[1:]:
            token = tokens.get(rule, 7) if question == "2" else 7
            lossy = int(rule in ("typical", "synthetic"))
            samples.append(sample(question, "qa", f"auto {rule}", 90.0, token=token, lossy=lossy))
    return evaluate(samples, settings(lengths, RULES, branches), frozenset())


def test_only_chains_under_coupled_are_promised_to_change_nothing() -> None:
    found = under_rules("0,auto", 1, classic=8, typical=9)
    assert status_of(found) == {
        "answers that differ between settings": "held",
        "classic: answers that differ from off": "not applicable",
        "typical: answers that differ from off": "not applicable",
        "synthetic: answers that differ from off": "not applicable",
        "qa: auto / off": "held",
    }
    assert found.held
    notes = {promise.name.partition(":")[0]: promise for promise in found.promises}
    assert notes["classic"].note == "greedily the same answer"
    assert notes["typical"].note == "lossy"
    assert notes["synthetic"].note == "meaningless"
    assert [notes[rule].measured for rule in ("classic", "typical", "synthetic")] == [1, 1, 0]
    assert found.figures["different"] == []


def test_another_answer_under_coupled_is_broken_beside_other_rules() -> None:
    found = under_rules("0,auto", 1, coupled=8)
    assert status_of(found)["answers that differ between settings"] == "BROKEN"
    assert found.figures["different"] == ["1", "2"]


def test_trees_may_turn_near_ties() -> None:
    found = under_rules("0,auto", 4, coupled=8)
    assert "answers that differ between settings" not in status_of(found)
    assert status_of(found)["coupled: answers that differ from off"] == "not applicable"
    assert found.promises[0].measured == 2
    assert "near ties" in found.promises[0].note


def test_speed_is_promised_of_auto_under_coupled_alone() -> None:
    assert [name for name in status_of(under_rules("0,auto", 1)) if " / " in name] == [
        "qa: auto / off"
    ]
    fixed = [sample("1", "qa", "off", 10.0), sample("1", "qa", "4", 90.0)]
    assert status_of(evaluate(fixed, settings("0,4"), frozenset())) == {
        "answers that differ between settings": "held"
    }
    classic = [sample("1", "qa", "off", 10.0), sample("1", "qa", "auto classic", 90.0)]
    assert evaluate(classic, settings("0,auto", "classic"), frozenset()).held


def test_tables_name_rules_and_mark_what_is_not_the_targets_answer() -> None:
    found = under_rules("0,auto", 1, classic=8, typical=9)
    shown = {row[1]: row[-1] for row in found.tables[0].rows}
    assert shown == {
        "off": "-",
        "auto": "1.000",
        "auto classic": "0.500",
        "auto typical (lossy)": "0.500",
        "auto synthetic (meaningless)": "1.000",
    }
    cells = {cell["setting"]: cell for cell in found.figures["cells"]}
    assert [(cell["length"], cell["rule"], cell["mark"]) for cell in cells.values()] == [
        ("off", None, ""),
        ("auto", "coupled", ""),
        ("auto", "classic", ""),
        ("auto", "typical", "lossy"),
        ("auto", "synthetic", "meaningless"),
    ]
    assert cells["off"]["identical"] is None
    assert cells["auto typical"]["identical"] == 0.5


def test_an_answer_is_compared_with_off_of_its_own_repeat() -> None:
    samples = [
        sample("1", "qa", "off", 9.0, repeat=0, token=7),
        sample("1", "qa", "off", 9.0, repeat=1, token=8),
        sample("1", "qa", "auto classic", 9.0, repeat=0, token=8),
        sample("1", "qa", "auto classic", 9.0, repeat=1, token=8),
    ]
    found = evaluate(samples, settings("0,auto", "classic"), frozenset())
    assert found.figures["cells"][1]["identical"] == 0.5


def timings(rule: str, lossless: bool) -> dict[str, Any]:
    return {"rule": rule, "lossless": lossless}


def test_a_gateway_that_says_another_thing_of_a_rule_is_an_error() -> None:
    off, coupled, typical = settings("0,auto", "coupled,typical")
    check_rule(off, timings("coupled", True))
    check_rule(coupled, timings("coupled", True))
    check_rule(typical, timings("typical", False))
    with pytest.raises(GatewayError, match="lossless true of an answer with the rule typical"):
        check_rule(typical, timings("typical", True))
    with pytest.raises(GatewayError, match="lossless false of an answer with the rule coupled"):
        check_rule(coupled, timings("coupled", False))
    with pytest.raises(GatewayError, match="lossless false of an answer with speculation off"):
        check_rule(off, timings("coupled", False))
    with pytest.raises(GatewayError, match="asked for the rule typical, it used coupled"):
        check_rule(typical, timings("coupled", True))


def test_every_parameter_of_sampling_is_sent() -> None:
    sampling = Sampling(temperature=0.8, top_k=5, seed=7, logit_bias=((3, -1.5),))
    assert sampling_fields(sampling) == {
        "temperature": 0.8,
        "top_k": 5,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logit_bias": {"3": -1.5},
        "min_tokens": 0,
        "seed": 7,
    }


def test_repeating_categories_are_those_present_or_those_named() -> None:
    questions = [Question("1", "edit", ("a",)), Question("2", "qa", ("a",))]
    assert _repeating(None, questions, greedy=True) == {"edit"}
    assert _repeating("qa, edit", questions, greedy=True) == {"qa", "edit"}
    with pytest.raises(UserError, match="--repeating names rag"):
        _repeating("rag,qa", questions, greedy=True)
    # What is sampled strays from the prompt: no category is promised to repeat it.
    assert _repeating(None, questions, greedy=False) == set()
    with pytest.raises(UserError, match=r"0\.4x, which only holds of greedy"):
        _repeating("edit", questions, greedy=False)


def test_sampled_answers_are_compared_by_seed_and_greedy_ones_are_the_same_under_any_rule() -> None:
    samples = [sample("1", "edit", name, 9.0) for name in ("off", "auto", "auto classic")]
    both = settings("0,auto", "coupled,classic")
    greedy, sampled = (
        {item.name: item for item in evaluate(samples, both, frozenset(), greedy=value).promises}
        for value in (True, False)
    )
    assert "answers that differ between settings" in greedy
    assert "answers that differ between settings, same seed" in sampled
    classic = "classic: answers that differ from off"
    assert greedy[classic].note == "greedily the same answer"
    assert sampled[classic].note == "the same distribution, another answer"
    assert sampled["edit: auto / off"].bound == round(NEVER_SLOWER, 3)


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
