"""The grid that a command line asks for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

import pytest

from bench.prompts import Question
from bench.run.plan import BASELINE, Plan, RunSetting, add_arguments, plan_of
from bench.setup import Setup
from gateway.engine.requests import Policy, Speculation
from models.errors import UserError
from tests.fake_engine import fake_package

QUESTIONS = [Question(str(n), "all", ("a",)) for n in range(3)]
DEFAULT = Speculation()


def planned(
    *arguments: str, quick: bool = False, questions: Sequence[Question] = QUESTIONS
) -> Plan:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    setup = Setup(fake_package(), questions, quick=quick)
    return plan_of(parser.parse_args(arguments), setup)


def test_by_default_every_drafter_is_measured_against_off() -> None:
    plan = planned()
    assert plan.settings == (BASELINE, RunSetting("ngram", DEFAULT.policy, None, DEFAULT.rule))
    assert (plan.concurrency, plan.repeats, plan.unsupported) == ((1,), 3, {})
    assert [sampling.temperature for sampling in plan.samplings] == [0.0]
    assert planned(quick=True).repeats == 1


def test_the_grid_is_every_combination_that_there_is() -> None:
    arguments = ("--policies", f"{DEFAULT.policy},fixed", "--lengths", "auto,4")
    names = [setting.name for setting in planned(*arguments, "--rules", "coupled,typical").settings]
    assert names == [
        "off",
        f"ngram {DEFAULT.policy}",
        f"ngram {DEFAULT.policy} typical",
        f"ngram {DEFAULT.policy}:4",
        f"ngram {DEFAULT.policy}:4 typical",
        "ngram fixed:4",
        "ngram fixed:4 typical",
    ]


def test_every_policy_of_the_gateway_is_known() -> None:
    plan = planned("--policies", ",".join(get_args(Policy)), "--lengths", "2", "--tpot-ms", "20")
    assert {setting.policy for setting in plan.settings} == set(get_args(Policy))
    assert plan.settings.count(BASELINE) == 1


def test_conditions_are_settings_under_every_load() -> None:
    plan = planned("--concurrency", "1,3", "--temperature", "0,0.8", "--top-p", "0.9")
    loads = [(c.sampling.temperature, c.concurrency) for c in plan.conditions()]
    assert loads == [(t, n) for t in (0.0, 0.8) for n in (1, 3) for _ in range(2)]
    assert [sampling.top_p for sampling in plan.samplings] == [1.0, 0.9]


def test_without_a_baseline_nothing_is_off() -> None:
    assert BASELINE not in planned("--no-baseline").settings
    assert planned("--no-baseline", "--policies", "off").settings == (BASELINE,)


def test_a_drafter_that_this_package_lacks_is_unsupported() -> None:
    plan = planned("--drafters", "ngram,eagle3")
    assert list(plan.unsupported) == ["eagle3"]
    assert "this package has" in plan.unsupported["eagle3"]
    assert [setting.drafter for setting in plan.settings] == ["off", "ngram", "eagle3"]


def test_wires_say_what_is_asked_for() -> None:
    assert BASELINE.wire == {"policy": "off"}
    assert RunSetting("ngram", "fixed", 4, "classic").wire == {
        "drafter": "ngram",
        "policy": "fixed",
        "length": 4,
        "rule": "classic",
    }
    assert "length" not in RunSetting("ngram", "cost", None, "coupled").wire
    slo = RunSetting("ngram", "slo", None, "coupled", branches=4, tpot_ms=20.0)
    assert (slo.wire["branches"], slo.wire["tpot_ms"]) == (4, 20.0)
    assert slo.name == "ngram slox4 20 ms"


def test_a_policy_goes_by_the_name_that_answers_say() -> None:
    settings = planned("--policies", "auto,cost").settings
    assert settings == (BASELINE, RunSetting("ngram", "cost", None, "coupled"))


def test_only_slo_has_a_target() -> None:
    settings = planned("--policies", "cost,slo", "--tpot-ms", "25").settings
    assert [(setting.policy, setting.tpot_ms) for setting in settings] == [
        ("off", None),
        ("cost", None),
        ("slo", 25.0),
    ]


def test_adasd_has_a_rule_of_its_own() -> None:
    settings = planned("--policies", "adasd", "--rules", "coupled,classic").settings
    assert [setting.rule for setting in settings] == [None, "adasd"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--drafters", "eagel3"), "'eagel3', which no package has"),
        (("--drafters", "off"), "'off', which no package has"),
        (("--policies", "never"), "--policies never: knows"),
        (("--rules", "strict"), "--rules strict: knows"),
        (("--policies", "fixed"), "needs a number"),
        (("--lengths", "0"), "takes auto and 1 to"),
        (("--concurrency", "0"), "takes 1 to"),
        (("--branches", "9"), "takes 1 to 8"),
        (("--policies", "slo"), "needs milliseconds per token"),
        (("--policies", "slo", "--tpot-ms", "0"), "takes 0.01 to"),
        (("--policies", "slo", "--tpot-ms", "nan"), "takes 0.01 to"),
        (("--concurrency", "4"), "there are 3"),
        (("--temperature", "warm"), "takes numbers"),
        (("--max-tokens", "4"), "at least 8"),
        (("--no-baseline", "--policies", "off", "--repeats", "0"), "at least 1"),
    ],
)
def test_what_cannot_be_asked_is_named(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        planned(*arguments)


def test_no_category_may_be_called_as_all_of_them_are() -> None:
    with pytest.raises(UserError, match="stands for every prompt"):
        planned(questions=[*QUESTIONS, Question("4", "copy", ("a",))])
