"""Lengths and rules become settings as the wire says them."""

from __future__ import annotations

from typing import get_args

import pytest

from bench.drafting import LOSSLESS, mark, parse_lengths, parse_rules, settings_for
from gateway.engine.requests import LOSSLESS_RULES, Rule
from models.errors import UserError


def test_every_length_meets_every_rule_and_off_comes_once() -> None:
    settings = settings_for(parse_lengths("0,auto,4"), parse_rules("coupled, typical"))
    assert [(item.name, item.rule, item.lossless) for item in settings] == [
        ("off", None, True),
        ("auto", "coupled", True),
        ("auto typical", "typical", False),
        ("4", "coupled", True),
        ("4 typical", "typical", False),
    ]
    assert settings[0].wire == {"policy": "off"}
    assert settings[2].wire == {"policy": "auto", "rule": "typical", "branches": 1}
    assert settings[3].wire == {
        "policy": "fixed",
        "length": 4,
        "rule": "coupled",
        "branches": 1,
    }


def test_branches_are_asked_for_wherever_something_is_drafted() -> None:
    off, tree = settings_for(parse_lengths("off,8"), ["classic"], 4)
    assert off.wire == {"policy": "off"}
    assert tree.wire == {"policy": "fixed", "length": 8, "rule": "classic", "branches": 4}


@pytest.mark.parametrize(
    ("rule", "branches", "identical"),
    [("coupled", 1, True), ("coupled", 2, False), ("classic", 1, False), ("adasd", 1, False)],
)
def test_chains_under_coupled_answer_as_off_does(rule: str, branches: int, identical: bool) -> None:
    off, drafted = settings_for(parse_lengths("0,auto"), [rule], branches)
    assert off.identical
    assert drafted.identical is identical


def test_the_rules_are_those_of_the_gateway() -> None:
    assert set(LOSSLESS) == set(get_args(Rule))
    assert {rule for rule, lossless in LOSSLESS.items() if lossless} == LOSSLESS_RULES
    assert parse_rules(",".join(LOSSLESS)) == list(LOSSLESS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("greedy", "--rules has 'greedy'; known are coupled, classic"),
        ("coupled,", "--rules has ''"),
        ("", "--rules has ''"),
        ("classic, classic", "--rules names a rule twice"),
    ],
)
def test_other_rules_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_rules(text)
    assert refused.value.param == "rules"


@pytest.mark.parametrize("branches", [0, 9, -1])
def test_other_branches_are_refused(branches: int) -> None:
    with pytest.raises(UserError, match="--branches must be from 1 to 8"):
        settings_for(parse_lengths("0,auto"), ["coupled"], branches)


def test_what_is_not_the_targets_answer_is_marked() -> None:
    assert mark(None, True) == mark("coupled", True) == mark("classic", True) == ""
    assert mark("typical", False) == mark("adasd", False) == "lossy"
    assert mark("synthetic", False) == "meaningless"
