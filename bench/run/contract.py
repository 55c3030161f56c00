"""Cells of a report: every category, and all together, under every condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from bench.machine import describe_machine, package_digest, versions
from bench.prompts import Question
from bench.run.against import against
from bench.run.metrics import MEAN, TOKENS, metrics_of
from bench.run.observed import Observed, Outcome
from bench.run.plan import BASELINE, Condition, Plan, RunSetting
from bench.run.schema import (
    ALL,
    Absent,
    DrafterGroup,
    DrafterPart,
    Metric,
    Quantity,
    RunCell,
    RuntimeGroup,
    SamplingGroup,
    SpeculationGroup,
    TargetGroup,
    WorkloadGroup,
)
from bench.setup import Setup
from gateway.engine.names import resolve
from models.package import Manifest, Package

_SEEDS = (
    "a request has a stream of random numbers of its own, a function of seed, position and token;"
    " every setting answers a prompt with the same seed"
)
_BONUS = (
    "a round that verifies a draft adds the target's own token behind what it accepted: the"
    " correction after a rejection, the next token after full acceptance"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same in every cell."""

    setup: Setup
    plan: Plan
    target: TargetGroup
    runtime: RuntimeGroup


def cells_of(
    setup: Setup, plan: Plan, outcomes: Sequence[Outcome], status: Mapping[str, Any]
) -> list[RunCell]:
    """In the order of `outcomes`; `all` comes behind the categories, where there are several."""
    around = Surroundings(setup, plan, target_group(setup.package), runtime_group(setup, status))
    categories: list[str | None] = list(dict.fromkeys(q.category for q in setup.questions))
    shown = [*categories, None] if len(categories) > 1 else [None]
    return [
        _cell(around, outcome, _baseline_of(outcome, outcomes), category)
        for outcome in outcomes
        for category in shown
    ]


def _cell(
    around: Surroundings, outcome: Outcome, baseline: Outcome | None, category: str | None
) -> RunCell:
    condition = outcome.condition
    sampling = condition.sampling
    answers = outcome.answers(category)
    return RunCell(
        setting=condition.setting.name,
        target=around.target,
        drafter=_drafter(condition, around.setup.package.manifest, outcome.absent),
        sampling=SamplingGroup(sampling.temperature, sampling.top_p, around.plan.seed, _SEEDS),
        speculation=_speculation(condition, outcome, answers),
        runtime=around.runtime,
        workload=_workload(around, outcome, category, answers),
        metrics=metrics_of(outcome, category),
        baseline=against(outcome, baseline, category, around.plan.seed),
    )


def _baseline_of(outcome: Outcome, outcomes: Sequence[Outcome]) -> Outcome | None:
    own = outcome.condition
    wanted = Condition(BASELINE, own.sampling, own.concurrency)
    return next((other for other in outcomes if other.condition == wanted), None)


def target_group(package: Package) -> TargetGroup:
    manifest = package.manifest
    spec = manifest.target
    return TargetGroup(
        name=manifest.name,
        checkpoint=spec.checkpoint,
        revision=spec.revision,
        sha256=spec.sha256,
        architecture=spec.architecture,
        weight_type=spec.weight_type,
        kv_type=spec.kv_type,
        tokenizer=manifest.files[manifest.tokenizer].sha256,
        package=package_digest(package),
    )


def runtime_group(setup: Setup, status: Mapping[str, Any]) -> RuntimeGroup:
    machine = describe_machine(setup.threads)
    spec = setup.package.manifest.target
    form = spec.integer_form or Absent("unsupported", f"weights are {spec.weight_type}")
    return RuntimeGroup(
        versions=versions(),
        provider=status["device"],
        kernels={"row_independent": status["exact"], "integer_form": form},
        hardware={name: value for name, value in machine.items() if name != "threads"},
        threads=machine["threads"],
        slots=status["slots"],
    )


def _drafter(condition: Condition, manifest: Manifest, absent: Absent | None) -> DrafterGroup:
    setting = condition.setting
    if not setting.drafts:
        return DrafterGroup(setting.drafter, ())
    specs = {spec.kind: spec for spec in manifest.drafters}
    if absent is not None and absent.absent == "unsupported":
        return DrafterGroup(
            setting.drafter, (DrafterPart(setting.drafter, absent, absent, absent),)
        )
    weightless = Absent("unsupported", "it has no weights")
    parts = [
        DrafterPart(
            kind,
            specs[kind].checkpoint if kind in specs else weightless,
            specs[kind].revision if kind in specs else weightless,
            specs[kind].sha256 if kind in specs else weightless,
        )
        for kind in resolve(setting.drafter, list(specs))
    ]
    return DrafterGroup(setting.drafter, tuple(parts))


def _speculation(
    condition: Condition, outcome: Outcome, answers: Sequence[Observed]
) -> SpeculationGroup:
    setting = condition.setting
    off = Absent("unsupported", "nothing is drafted")
    rounds = sum(one.timings["rounds"] for one in answers)
    verified = sum(one.timings["draft_n"] for one in answers)
    proposed = (
        Quantity(verified / rounds, MEAN) if rounds else Absent("missing", "no round was run")
    )
    return SpeculationGroup(
        policy=setting.policy,
        length_limit=_limit(setting) if setting.drafts else off,
        proposed_length=(outcome.absent or proposed) if setting.drafts else off,
        rule=setting.rule or off,
        lossless=outcome.absent or all(one.timings["lossless"] for one in answers),
        bonus_semantics=_BONUS,
    )


def _limit(setting: RunSetting) -> Metric:
    if setting.length is None:
        return Absent("unsupported", f"none was asked for: the policy {setting.policy!r} chooses")
    return Quantity(setting.length, TOKENS)


def _workload(
    around: Surroundings, outcome: Outcome, category: str | None, answers: Sequence[Observed]
) -> WorkloadGroup:
    def mean(counts: Sequence[int]) -> Metric:
        return outcome.absent or Quantity(fmean(counts), TOKENS)

    return WorkloadGroup(
        source=around.setup.source,
        category=category or ALL,
        prompts=len(_members(around.setup.questions, category)),
        repeats=around.plan.repeats,
        concurrency=outcome.condition.concurrency,
        max_tokens=around.plan.max_tokens,
        input_tokens=mean([one.prompt_tokens for one in answers]),
        cached_tokens=mean([one.cached_tokens for one in answers]),
        output_tokens=mean([len(one.ids) for one in answers]),
    )


def _members(questions: Sequence[Question], category: str | None) -> list[Question]:
    return [one for one in questions if category is None or one.category == category]
