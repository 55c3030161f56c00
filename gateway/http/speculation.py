"""The `speculation` object of a request, an extension on every endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from gateway.engine.requests import (
    LEAST_TPOT_MS,
    MOST_BRANCHES,
    MOST_TPOT_MS,
    POLICY_NAMES,
    Pacing,
    Policy,
    Rule,
    Speculation,
    named_policy,
    needed_by_policy,
)
from gateway.http.fields import (
    in_range,
    number,
    one_of,
    only_known,
    optional,
    typed,
    unsupported,
)
from gateway.settings import MAX_DRAFT_LENGTH
from models.errors import UserError

Name = TypeVar("Name", bound=str)
PREFIX = "speculation."
PACINGS: tuple[Pacing, ...] = get_args(Pacing)
RULES: tuple[Rule, ...] = get_args(Rule)
FIELDS = ("drafter", "length", "policy", "off", "branches", "rule", "tpot_ms", "pacing")
# What only one rule reads: beside another it would silently do nothing.
RULE_OF: Mapping[str, Rule] = MappingProxyType(
    {"acceptance": "synthetic", "epsilon": "typical", "delta": "typical"}
)


def parse_speculation(value: Any, defaults: Speculation) -> Speculation:
    """What it names replaces the gateway's defaults. Raises `UserError` that names the field.

    Which drafters there are the engine knows, and says when the request is opened.
    """
    if value is None:
        return defaults
    typed(value, dict, "speculation")
    only_known(value, (*FIELDS, *RULE_OF), "speculation")
    drafter = optional(value, "drafter", str, PREFIX)
    changed = replace(
        defaults,
        policy=_policy(value, defaults.policy),
        rule=_one_of(value, "rule", RULES, defaults.rule),
        drafter=defaults.drafter if drafter is None else drafter,
        length=_length(value, defaults.length),
        branches=_branches(value, defaults.branches),
        tpot_ms=_tpot_ms(value, defaults.tpot_ms),
        pacing=_one_of(value, "pacing", PACINGS, defaults.pacing),
    )
    for policy, field in needed_by_policy(changed):
        raise UserError(
            f"speculation.{field} is needed with the policy {policy!r}.",
            code="missing_required_parameter",
            param=PREFIX + field,
        )
    return _for_its_rule(_for_its_policy(changed, value), value)


def _one_of(value: Mapping[str, Any], name: str, known: tuple[Name, ...], default: Name) -> Name:
    named = optional(value, name, str, PREFIX)
    if named is None:
        return default
    one_of(named, known, PREFIX + name)
    return known[known.index(named)]


def _length(value: Mapping[str, Any], default: int | None) -> int | None:
    length = optional(value, "length", int, PREFIX)
    if length is None:
        return default
    return in_range(length, 1, MAX_DRAFT_LENGTH, "speculation.length")


def _branches(value: Mapping[str, Any], default: int) -> int:
    branches = optional(value, "branches", int, PREFIX)
    if branches is None:
        return default
    return in_range(branches, 1, MOST_BRANCHES, "speculation.branches")


def _tpot_ms(value: Mapping[str, Any], default: float | None) -> float | None:
    if value.get("tpot_ms") is None:
        return default
    param = PREFIX + "tpot_ms"
    return in_range(number(value["tpot_ms"], param), LEAST_TPOT_MS, MOST_TPOT_MS, param)


def _for_its_policy(speculation: Speculation, value: Mapping[str, Any]) -> Speculation:
    if speculation.policy != "adasd":
        return speculation
    if value.get("rule") not in (None, "adasd"):
        raise unsupported("speculation.rule", value["rule"], "absent with the policy 'adasd'")
    return replace(speculation, rule="adasd")


def _for_its_rule(speculation: Speculation, value: Mapping[str, Any]) -> Speculation:
    given: dict[str, Any] = {}
    for name, rule in RULE_OF.items():
        if value.get(name) is not None:
            param = PREFIX + name
            given[name] = in_range(number(value[name], param), 0, 1, param)
            if speculation.rule != rule:
                raise unsupported(param, value[name], f"absent, or with the rule {rule!r}")
    return replace(speculation, **given)


def _policy(value: Mapping[str, Any], default: Policy) -> Policy:
    policy = optional(value, "policy", str, PREFIX)
    off = optional(value, "off", bool, PREFIX)
    if policy is not None:
        one_of(policy, POLICY_NAMES, "speculation.policy")
    if off is True:
        if policy not in (None, "off"):
            raise _contradiction("true", policy)
        return "off"
    if off is False:
        if policy == "off":
            raise _contradiction("false", policy)
        if policy is None and default == "off":
            return Speculation().policy
    return default if policy is None else named_policy(policy)


def _contradiction(off: str, policy: str | None) -> UserError:
    return UserError(
        f"speculation.off {off} contradicts the policy {policy!r}; leave one of them out.",
        code="unsupported_value",
        param="speculation.off",
    )
