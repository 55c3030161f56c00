"""Has a gateway of its own bear every load under every policy, interleaved.

Under a load each policy has a window in turn, with the same prompts at the same times, in an order
that rotates from repeat to repeat. Before it the gateway's slots are given the same contents.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from bench.client import GatewayError, connected
from bench.gateway_process import running_gateway
from bench.prompts import Question
from bench.run.driving import REFUSALS, rotated, status_of
from bench.run.schema import Absent
from bench.serve.phases import Phase, phases_of
from bench.serve.plan import Load, Plan, Policy, Targets
from bench.serve.requests import ask
from bench.serve.slot_contents import fill_slots
from bench.serve.windows import Window, chosen, window_of
from bench.setup import Setup, progress
from gateway.engine.names import NGRAM
from models.errors import UserError

_WARM_UP = Question("warm-up", "warm-up", ("Count to ten.",))
_ALONE = 6
"""Answers of plain decoding alone from which targets follow."""

_TTFT_TIMES, _TPOT_TIMES = 5.0, 2.0


@dataclass(slots=True)
class Kept:
    """Everything seen so far."""

    windows: dict[tuple[Load, Policy], list[Window]] = field(default_factory=dict)
    phases: dict[Policy, list[list[Phase]]] = field(default_factory=dict)
    absent: dict[Policy, Absent] = field(default_factory=dict)
    targets: Targets | None = None
    status: Mapping[str, Any] | None = None


async def drive(setup: Setup, plan: Plan, kept: Kept) -> None:
    """Raises `GatewayError` where plain decoding fails, `UserError` where no target follows."""
    settings = {"slots": plan.slots, "queue": plan.queue, "speculation_drafter": NGRAM}
    async with running_gateway(setup, **settings) as gateway:
        driver = _Driver(gateway.url, plan, setup.questions, kept)
        kept.status = await status_of(gateway.url)
        await driver.aim()
        await driver.warm_up()
        for load in plan.loads:
            await driver.bear(load)
        if plan.phases:
            await driver.change()


class _Driver:
    def __init__(self, url: str, plan: Plan, questions: Sequence[Question], kept: Kept) -> None:
        self._url = url
        self._plan = plan
        self._questions = questions
        self._kept = kept
        self._failures = 0

    async def aim(self) -> None:
        """Plain decoding alone, twice its first prompt: the first answers of a process are
        slower."""
        plan, questions = self._plan, chosen(self._questions, _ALONE, self._plan.seed)
        off = plan.policies[0].wire(0.0)
        async with connected(self._url) as client:
            asked = [
                await ask(client, plan, question, off, time.perf_counter())
                for question in (_WARM_UP, *questions)
            ]
        for request in asked:
            if request.ending != "answered":
                raise GatewayError(request.why)
        firsts = [one.ttft_ms for one in asked[1:] if one.ttft_ms is not None]
        others = [one.tpot_ms for one in asked[1:] if one.tpot_ms is not None]
        if not (firsts and others) and None in (plan.ttft_ms, plan.tpot_ms):
            raise UserError(
                "the answers are too short to be timed: name --ttft-ms and --tpot-ms.",
                code="no_targets",
                param="tpot_ms",
            )
        self._kept.targets = Targets(
            plan.ttft_ms or _TTFT_TIMES * median(firsts),
            plan.tpot_ms or _TPOT_TIMES * fmean(others),
        )

    async def warm_up(self) -> None:
        """What the gateway refuses of a policy it refuses here."""
        for policy in self._plan.policies[1:]:
            async with connected(self._url) as client:
                request = await ask(
                    client, self._plan, _WARM_UP, self._wire(policy), time.perf_counter()
                )
            if request.ending != "answered":
                refused = request.why.partition(":")[0] in REFUSALS
                absent = Absent("unsupported" if refused else "failed", request.why)
                self._kept.absent[policy] = absent
                progress(f"serve: {policy.label} is {absent.absent}: {absent.why}")
            await self._note_failures(policy)

    async def bear(self, load: Load) -> None:
        plan = self._plan
        for repeat in range(plan.repeats):
            for policy in self._in_turn(repeat):
                await fill_slots(self._url, plan)
                window = await window_of(
                    self._url, plan, load, self._questions, self._wire(policy), plan.seed + repeat
                )
                self._kept.windows.setdefault((load, policy), []).append(window)
                await self._note_failures(policy)
            progress(f"serve: {load.label}, window {repeat + 1} of {plan.repeats}")

    async def change(self) -> None:
        plan = self._plan
        for repeat in range(plan.repeats):
            for policy in self._in_turn(repeat):
                await fill_slots(self._url, plan)
                try:
                    seen = await phases_of(
                        self._url, plan, self._questions, self._wire(policy), plan.seed + repeat
                    )
                except GatewayError as error:
                    if policy is plan.policies[0]:
                        raise
                    self._kept.absent[policy] = Absent("failed", str(error))
                    continue
                self._kept.phases.setdefault(policy, []).append(seen)
                await self._note_failures(policy)
            progress(f"serve: changing load, repeat {repeat + 1} of {plan.repeats}")

    def _in_turn(self, repeat: int) -> list[Policy]:
        return rotated([p for p in self._plan.policies if p not in self._kept.absent], repeat)

    def _wire(self, policy: Policy) -> Mapping[str, Any]:
        assert self._kept.targets is not None, "targets come first"
        return policy.wire(self._kept.targets.tpot_ms)

    async def _note_failures(self, policy: Policy) -> None:
        """Answers go on without a drafter that fails: only the status tells."""
        drafters = (await status_of(self._url))["drafters"]
        failures = sum(each["failures"] for each in drafters)
        if failures > self._failures:
            self._failures = failures
            failed = next(each for each in drafters if each["failures"])
            self._kept.absent[policy] = Absent("failed", f"{failed['name']}: {failed['problem']}")
