"""The grid of a run, as the command line asks for it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.drafter_settings import ALL, drafters_of
from bench.drafting import AUTO, OFF
from bench.naturals import natural
from bench.run.schema import ALL as TOGETHER
from bench.setup import Setup
from gateway.engine.names import is_name, resolve
from gateway.engine.requests import (
    LEAST_TPOT_MS,
    MOST_BRANCHES,
    MOST_TPOT_MS,
    POLICY_NAMES,
    Policy,
    Speculation,
    named_policy,
)
from gateway.http.speculation import RULES
from gateway.settings import MAX_DRAFT_LENGTH
from models.errors import UserError
from models.sampling.parameters import Sampling

FIXED, SLO, ADASD = "fixed", "slo", "adasd"
FEWEST_TOKENS = 8
"""Shorter answers are not timed: they say more about the first token than about the others."""

_DEFAULTS = Speculation()
_MOST_STREAMS = 64


@dataclass(frozen=True, slots=True)
class RunSetting:
    """A way of drafting; `length` None leaves it to the policy. `rule` None: nothing is drafted.
    `branches` > 1 drafts trees, `tpot_ms` is the target of the policy `slo`."""

    drafter: str
    policy: str
    length: int | None
    rule: str | None
    branches: int = 1
    tpot_ms: float | None = None

    @property
    def drafts(self) -> bool:
        return self.rule is not None

    @property
    def name(self) -> str:
        if not self.drafts:
            return OFF
        length = "" if self.length is None else f":{self.length}"
        branches = "" if self.branches == 1 else f"x{self.branches}"
        target = "" if self.tpot_ms is None else f" {self.tpot_ms:g} ms"
        rule = "" if self.rule == _DEFAULTS.rule else f" {self.rule}"
        return f"{self.drafter} {self.policy}{length}{branches}{target}{rule}"

    @property
    def wire(self) -> dict[str, Any]:
        """The request's `speculation` object."""
        if not self.drafts:
            return {"policy": OFF}
        length = {} if self.length is None else {"length": self.length}
        branches = {} if self.branches == 1 else {"branches": self.branches}
        target = {} if self.tpot_ms is None else {"tpot_ms": self.tpot_ms}
        asked = {"drafter": self.drafter, "policy": self.policy, "rule": self.rule}
        return {**asked, **length, **branches, **target}


BASELINE = RunSetting(OFF, OFF, None, None)


@dataclass(frozen=True, slots=True)
class Condition:
    """What a setting is measured under."""

    setting: RunSetting
    sampling: Sampling
    concurrency: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`settings` begin with the baseline where it is measured. `unsupported` says, by drafter, why
    this package cannot run it. `seed` is that of requests, of the prompts' order and of the
    statistics."""

    settings: tuple[RunSetting, ...]
    samplings: tuple[Sampling, ...]
    concurrency: tuple[int, ...]
    unsupported: dict[str, str]
    repeats: int
    max_tokens: int
    seed: int

    def conditions(self) -> list[Condition]:
        return [
            Condition(setting, sampling, streams)
            for sampling in self.samplings
            for streams in self.concurrency
            for setting in self.settings
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag = parser.add_argument
    flag("--drafters", default=ALL, metavar="NAME,...", help="default: all of the package")
    flag(
        "--policies",
        default=_DEFAULTS.policy,
        metavar="NAME,...",
        help=f"of {', '.join(POLICY_NAMES)}; default: {_DEFAULTS.policy}",
    )
    flag(
        "--lengths",
        default=AUTO,
        metavar="auto,N,...",
        help=f"of drafts, at most; auto leaves it to the policy, {FIXED} needs numbers; "
        f"default: {AUTO}",
    )
    flag(
        "--rules",
        default=_DEFAULTS.rule,
        metavar="NAME,...",
        help=f"of {', '.join(RULES)}; default: {_DEFAULTS.rule}",
    )
    flag("--branches", default="1", metavar="N,...", help="continuations of a draft; default: 1")
    flag("--tpot-ms", type=float, metavar="X", help=f"target of the policy {SLO}, needed with it")
    flag("--concurrency", default="1", metavar="N,...", help="streams at once; default: 1")
    flag("--temperature", default="0", metavar="T,...", help="0 is greedy; default: 0")
    flag("--top-p", type=float, default=1.0, metavar="P", help="where T is not 0; default: 1")
    flag("--seed", type=int, default=0, metavar="S", help="default: 0")
    flag("--max-tokens", type=int, default=128, metavar="N", help="of an answer; default: 128")
    flag("--repeats", type=int, default=3, metavar="N", help="default: 3, with --quick 1")
    flag(
        "--baseline",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure speculation off, interleaved with the rest; on by default",
    )


def plan_of(parsed: argparse.Namespace, setup: Setup) -> Plan:
    """Raises `UserError` for what cannot be asked of any package, or of these prompts."""
    repeats = 1 if setup.quick else parsed.repeats
    if repeats < 1 or parsed.max_tokens < FEWEST_TOKENS:
        raise _usage(
            "max_tokens", f"must be at least {FEWEST_TOKENS}, and --repeats at least 1", parsed
        )
    categories = {question.category for question in setup.questions}
    if len(categories) > 1 and TOGETHER in categories:
        raise UserError(
            f"some prompts have no category, or {TOGETHER!r}, which stands for every prompt: name"
            " another.",
            code="prompts_invalid",
            param="prompts",
        )
    drafters = _drafters(parsed.drafters, setup)
    return Plan(
        settings=_settings(parsed, drafters),
        samplings=_samplings(parsed),
        concurrency=_concurrency(parsed, len(setup.questions)),
        unsupported=_unsupported(drafters, [s.kind for s in setup.package.manifest.drafters]),
        repeats=repeats,
        max_tokens=parsed.max_tokens,
        seed=parsed.seed,
    )


def _settings(parsed: argparse.Namespace, drafters: Sequence[str]) -> tuple[RunSetting, ...]:
    policies = _policies(parsed)
    rules = _names(parsed, "rules", RULES)
    lengths = _lengths(parsed)
    branches = _naturals(parsed, "branches", MOST_BRANCHES)
    grid = [
        RunSetting(
            drafter,
            policy,
            length,
            ADASD if policy == ADASD else rule,
            forks,
            parsed.tpot_ms if policy == SLO else None,
        )
        for drafter in drafters
        for policy in policies
        for length in lengths
        for rule in rules
        for forks in branches
        if policy != OFF and not (policy == FIXED and length is None)
    ]
    if FIXED in policies and lengths == [None]:
        raise _usage("lengths", f"needs a number: the policy {FIXED!r} has no length", parsed)
    if SLO in policies and parsed.tpot_ms is None:
        raise _usage("tpot_ms", f"the policy {SLO!r} needs milliseconds per token", parsed)
    if parsed.tpot_ms is not None and not LEAST_TPOT_MS <= parsed.tpot_ms <= MOST_TPOT_MS:
        raise _usage("tpot_ms", f"takes {LEAST_TPOT_MS} to {MOST_TPOT_MS}", parsed)
    plain = (BASELINE,) if parsed.baseline or OFF in policies else ()
    return (*plain, *dict.fromkeys(grid))


def _drafters(text: str, setup: Setup) -> tuple[str, ...]:
    if text == ALL:
        return drafters_of(setup.package.manifest)
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name == OFF or not is_name(name):
            raise UserError(
                f"--drafters has {name!r}, which no package has; this one has"
                f" {', '.join(drafters_of(setup.package.manifest))}.",
                code="usage",
                param="drafters",
            )
    return tuple(dict.fromkeys(names))


def _unsupported(drafters: Sequence[str], kinds: Sequence[str]) -> dict[str, str]:
    why: dict[str, str] = {}
    for name in drafters:
        try:
            resolve(name, kinds)
        except UserError as error:
            why[name] = error.message
    return why


def _policies(parsed: argparse.Namespace) -> list[Policy]:
    """By the names that answers say."""
    return list(dict.fromkeys(named_policy(n) for n in _names(parsed, "policies", POLICY_NAMES)))


def _names(parsed: argparse.Namespace, flag: str, known: Sequence[str]) -> list[str]:
    names = [part.strip() for part in getattr(parsed, flag).split(",")]
    if not set(names) <= set(known):
        raise _usage(flag, f"knows {', '.join(known)}", parsed)
    return list(dict.fromkeys(names))


def _lengths(parsed: argparse.Namespace) -> list[int | None]:
    lengths: list[int | None] = []
    for part in (part.strip() for part in parsed.lengths.split(",")):
        length = None if part == AUTO else natural(part, MAX_DRAFT_LENGTH)
        if length is None and part != AUTO:
            raise _usage("lengths", f"takes {AUTO} and 1 to {MAX_DRAFT_LENGTH}", parsed)
        lengths.append(length)
    return list(dict.fromkeys(lengths))


def _concurrency(parsed: argparse.Namespace, prompts: int) -> tuple[int, ...]:
    known = _naturals(parsed, "concurrency", _MOST_STREAMS)
    if max(known) > prompts:
        raise _usage(
            "concurrency", f"needs as many prompts as streams, there are {prompts}", parsed
        )
    return tuple(known)


def _naturals(parsed: argparse.Namespace, flag: str, most: int) -> list[int]:
    numbers = [natural(part.strip(), most) for part in getattr(parsed, flag).split(",")]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        raise _usage(flag, f"takes 1 to {most}", parsed)
    return list(dict.fromkeys(known))


def _samplings(parsed: argparse.Namespace) -> tuple[Sampling, ...]:
    try:
        temperatures = [float(part) for part in parsed.temperature.split(",")]
    except ValueError:
        raise _usage("temperature", "takes numbers, as in 0,0.8", parsed) from None
    return tuple(
        Sampling(temperature=each, top_p=parsed.top_p if each else 1.0, seed=parsed.seed)
        for each in dict.fromkeys(temperatures)
    )


def _usage(flag: str, problem: str, parsed: argparse.Namespace) -> UserError:
    shown = "--" + flag.replace("_", "-")
    return UserError(f"{shown} {getattr(parsed, flag)}: {problem}.", code="usage", param=flag)
