"""The `speculation` object: what it replaces, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engine.requests import MOST_BRANCHES, Speculation
from gateway.http.speculation import parse_speculation
from gateway.settings import MAX_DRAFT_LENGTH
from models.errors import UserError

SPECULATIONS: list[tuple[dict[str, Any] | None, Speculation, Speculation]] = [
    (None, Speculation(policy="fixed", length=3), Speculation(policy="fixed", length=3)),
    ({}, Speculation(length=3), Speculation(length=3)),
    ({"length": 5}, Speculation(length=3), Speculation(length=5)),
    ({"policy": "fixed"}, Speculation(length=3), Speculation(policy="fixed", length=3)),
    ({"off": True}, Speculation(length=3), Speculation(policy="off", length=3)),
    ({"off": True, "policy": "off"}, Speculation(), Speculation(policy="off")),
    ({"off": False}, Speculation(policy="off"), Speculation(policy="cost")),
    (
        {"off": False, "policy": "fixed", "length": 2},
        Speculation(),
        Speculation("auto", "fixed", 2),
    ),
    ({"drafter": "ngram"}, Speculation(policy="off"), Speculation("ngram", "off")),
    ({"drafter": None, "rule": "coupled"}, Speculation("ngram"), Speculation("ngram")),
    ({"drafter": "ngram+eagle3"}, Speculation(), Speculation("ngram+eagle3")),
    # Which the engine does not know: an empty name is none of those it has.
    ({"drafter": ""}, Speculation("ngram"), Speculation("")),
    ({"policy": None, "length": None}, Speculation(length=3), Speculation(length=3)),
    ({"branches": 4}, Speculation(), Speculation(branches=4)),
    ({"branches": MOST_BRANCHES, "length": 31}, Speculation(), Speculation(length=31, branches=8)),
    ({"rule": "classic"}, Speculation(), Speculation(rule="classic")),
    ({"rule": "adasd"}, Speculation(), Speculation(rule="adasd")),
    (
        {"rule": "synthetic", "acceptance": 1},
        Speculation(),
        Speculation(rule="synthetic", acceptance=1.0),
    ),
    (
        {"rule": "typical", "epsilon": 0.1, "delta": 0},
        Speculation(),
        Speculation(rule="typical", epsilon=0.1, delta=0.0),
    ),
    ({"rule": "typical", "epsilon": None}, Speculation(), Speculation(rule="typical")),
    ({"policy": "auto"}, Speculation(policy="off"), Speculation(policy="cost")),
    ({"policy": "ema-tiers"}, Speculation(length=5), Speculation(policy="ema-tiers", length=5)),
    ({"policy": "confidence"}, Speculation(), Speculation(policy="confidence")),
    ({"policy": "slo", "tpot_ms": 20}, Speculation(), Speculation(policy="slo", tpot_ms=20.0)),
    ({"policy": "slo"}, Speculation(tpot_ms=9.5), Speculation(policy="slo", tpot_ms=9.5)),
    ({"policy": "adasd"}, Speculation(), Speculation(policy="adasd", rule="adasd")),
    (
        {"policy": "adasd", "rule": "adasd"},
        Speculation(),
        Speculation(policy="adasd", rule="adasd"),
    ),
    ({"pacing": "even"}, Speculation(), Speculation(pacing="even")),
    ({"pacing": "none"}, Speculation(pacing="even"), Speculation()),
    ({"pacing": None}, Speculation(pacing="even"), Speculation(pacing="even")),
]


@pytest.mark.parametrize(("value", "defaults", "expected"), SPECULATIONS)
def test_it_replaces_what_it_names(
    value: dict[str, Any] | None, defaults: Speculation, expected: Speculation
) -> None:
    assert parse_speculation(value, defaults) == expected


WRONG: list[tuple[Any, str, str]] = [
    ("off", "invalid_type", "speculation"),
    (True, "invalid_type", "speculation"),
    ({"length": "4"}, "invalid_type", "speculation.length"),
    ({"length": True}, "invalid_type", "speculation.length"),
    ({"off": 1}, "invalid_type", "speculation.off"),
    ({"policy": 1}, "invalid_type", "speculation.policy"),
    ({"drafter": ["ngram"]}, "invalid_type", "speculation.drafter"),
    ({"rule": {}}, "invalid_type", "speculation.rule"),
    ({"branches": 2.0}, "invalid_type", "speculation.branches"),
    ({"rule": "synthetic", "acceptance": "1"}, "invalid_type", "speculation.acceptance"),
    ({"rule": "typical", "delta": False}, "invalid_type", "speculation.delta"),
    ({"length": 0}, "unsupported_value", "speculation.length"),
    ({"length": 1e20}, "unsupported_value", "speculation.length"),
    ({"policy": "fixed"}, "missing_required_parameter", "speculation.length"),
    ({"length": MAX_DRAFT_LENGTH + 1}, "unsupported_value", "speculation.length"),
    ({"drafter": 7}, "invalid_type", "speculation.drafter"),
    ({"policy": "best"}, "unsupported_value", "speculation.policy"),
    ({"rule": "greedy"}, "unsupported_value", "speculation.rule"),
    ({"off": True, "policy": "auto"}, "unsupported_value", "speculation.off"),
    ({"off": False, "policy": "off"}, "unsupported_value", "speculation.off"),
    ({"lenght": 4}, "unsupported_value", "speculation.lenght"),
    ({"x" * 500: 4}, "unsupported_value", "speculation." + "x" * 77 + "..."),
    ({"branches": 0}, "unsupported_value", "speculation.branches"),
    ({"branches": MOST_BRANCHES + 1}, "unsupported_value", "speculation.branches"),
    ({"rule": "synthetic", "acceptance": 1.5}, "unsupported_value", "speculation.acceptance"),
    ({"rule": "typical", "epsilon": -0.1}, "unsupported_value", "speculation.epsilon"),
    ({"rule": "typical", "delta": 2}, "unsupported_value", "speculation.delta"),
    ({"policy": "slo"}, "missing_required_parameter", "speculation.tpot_ms"),
    ({"policy": "slo", "tpot_ms": 0}, "unsupported_value", "speculation.tpot_ms"),
    ({"policy": "slo", "tpot_ms": 1e9}, "unsupported_value", "speculation.tpot_ms"),
    ({"policy": "slo", "tpot_ms": "20"}, "invalid_type", "speculation.tpot_ms"),
    ({"policy": "adasd", "rule": "coupled"}, "unsupported_value", "speculation.rule"),
    ({"pacing": "smooth"}, "unsupported_value", "speculation.pacing"),
    ({"pacing": True}, "invalid_type", "speculation.pacing"),
    # What the rule would not read.
    ({"acceptance": 0.5}, "unsupported_value", "speculation.acceptance"),
    ({"rule": "typical", "acceptance": 0.5}, "unsupported_value", "speculation.acceptance"),
    ({"rule": "classic", "epsilon": 0.1}, "unsupported_value", "speculation.epsilon"),
    ({"rule": "adasd", "delta": 0.1}, "unsupported_value", "speculation.delta"),
]


@pytest.mark.parametrize(("value", "code", "param"), WRONG)
def test_a_wrong_value_names_its_field(value: Any, code: str, param: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_speculation(value, Speculation())
    assert (caught.value.code, caught.value.param) == (code, param)
    assert param.removeprefix("speculation.") in caught.value.message


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(UserError, match="Did you mean 'length'"):
        parse_speculation({"lenght": 4}, Speculation())
    with pytest.raises(UserError, match="accepted: absent, or with the rule 'typical'"):
        parse_speculation({"epsilon": 0.1}, Speculation())


TOLD: list[tuple[dict[str, Any], str]] = [
    ({"length": 0}, "speculation.length must be from 1 to 31, not 0."),
    ({"length": 32}, "speculation.length must be from 1 to 31, not 32."),
    ({"branches": 9}, "speculation.branches must be from 1 to 8, not 9."),
    (
        {"rule": "synthetic", "acceptance": 1.5},
        "speculation.acceptance must be from 0 to 1, not 1.5.",
    ),
    ({"policy": "fixed"}, "speculation.length is needed with the policy 'fixed'."),
    ({"policy": "slo"}, "speculation.tpot_ms is needed with the policy 'slo'."),
    (
        {"policy": "slo", "tpot_ms": 0},
        "speculation.tpot_ms must be from 0.01 to 60000, not 0.0.",
    ),
    (
        {"policy": "adasd", "rule": "classic"},
        "speculation.rule \"classic\" is not supported; accepted: absent with the policy 'adasd'.",
    ),
    (
        {"policy": "best"},
        "speculation.policy \"best\" is not supported; accepted: one of 'cost', 'fixed', "
        "'ema-tiers', 'confidence', 'slo', 'adasd', 'off', 'auto'.",
    ),
    (
        {"off": True, "policy": "auto"},
        "speculation.off true contradicts the policy 'auto'; leave one of them out.",
    ),
    (
        {"off": False, "policy": "off"},
        "speculation.off false contradicts the policy 'off'; leave one of them out.",
    ),
]


@pytest.mark.parametrize(("value", "message"), TOLD)
def test_what_would_be_right_is_told(value: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_speculation(value, Speculation())
    assert caught.value.message == message
