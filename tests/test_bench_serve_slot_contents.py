"""Filling the slots of a scripted engine."""

from __future__ import annotations

import pytest

from bench.client import GatewayError
from bench.serve.slot_contents import fill_slots
from tests.bench_serve_support import plan
from tests.fake_engine import FakeEngine
from tests.http_serving import serving


async def test_every_slot_gets_a_prompt_of_its_own_by_plain_decoding() -> None:
    engine = FakeEngine("twelve chars", pace=0.005)
    async with serving(engine) as served:
        await fill_slots(served.url, plan(slots=4))
        await fill_slots(served.url, plan(slots=4))
    assert engine.most_running == 4
    prompts = [engine.prompt(index) for index in range(8)]
    assert len(set(prompts)) == 4
    assert sorted(prompts[:4]) == sorted(prompts[4:]), "the same ones each time"
    assert {request.speculation.policy for request in engine.requests} == {"off"}
    assert all(request.ignore_eos for request in engine.requests)


async def test_whoever_is_refused_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.serve.slot_contents.RETRY_SECONDS", 0.0)
    engine = FakeEngine("twelve chars", pace=0.001, capacity=1)
    async with serving(engine) as served:
        await fill_slots(served.url, plan(slots=3))
    assert len({engine.prompt(index) for index in range(3)}) == 3


async def test_a_gateway_that_fails_is_no_start() -> None:
    async with serving(FakeEngine(failure=RuntimeError("broken"))) as served:
        with pytest.raises(GatewayError, match="server_error"):
            await fill_slots(served.url, plan())
