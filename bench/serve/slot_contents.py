"""What the gateway's slots hold before something is measured: the same under every policy.

A slot keeps its last prompt and answer, and whoever asks with the same beginning saves its prefill.
So each policy would find prompts that the one before has asked.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace

from bench.client import Client, GatewayError, connected
from bench.prompts import Question
from bench.serve.plan import Plan
from bench.serve.requests import ask
from bench.serve.windows import RETRY_SECONDS

_TOKENS = 16
"""Of an answer: long enough that all are under way at once, each in a slot of its own."""


async def fill_slots(url: str, plan: Plan) -> None:
    """Give every slot a prompt of its own, which no question shares more of than the template, and
    an answer of plain decoding. Raises `GatewayError`."""
    asked = replace(plan, max_tokens=_TOKENS)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(url)) for _ in range(plan.slots)]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_fill(client, asked, _prompt(number)))
                for number, client in enumerate(clients)
            ]
    failed = [why for task in tasks if (why := task.result()) is not None]
    if failed:
        raise GatewayError(failed[0])


def _prompt(number: int) -> Question:
    return Question("filling", "filling", (f"{number} apples and {number} pears are",))


async def _fill(client: Client, plan: Plan, question: Question) -> str | None:
    """Why it failed, if it did. A stream that was cancelled just before may still have its slot."""
    wire = plan.policies[0].wire(0.0)
    while True:
        now = time.perf_counter()
        request = await ask(client, plan, question, wire, now, ignore_eos=True)
        if request.ending != "refused":
            return request.why or None
        await asyncio.sleep(RETRY_SECONDS)
