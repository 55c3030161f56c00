"""Device errors: what they cost, and what they do not.

The engine is real, on the tiny package; its runs fail as ONNX Runtime's do.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from gateway.fleet.watch import Watch
from models.target import Row
from models.tokenizer import StreamDecoder, Tokenizer
from tests.engine_support import Reference, TestEngine, make_prompt
from tests.fleet_support import RealStarts
from tests.http_serving import Served, ask, serving, socket_to, until
from tests.learned_support import PLAIN_PROMPT, FakeLearned
from tests.test_http_guard import get

COUNT = 24
PROMPTS = tuple(make_prompt(20, seed) for seed in range(4))
OUT_OF_MEMORY = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running"
    " MatMul node. Failed to allocate memory for requested buffer of size 1073741824"
)


def out_of_memory(rows: Sequence[Row]) -> bool:
    raise RuntimeException(OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True)
class Started:
    served: Served
    starts: RealStarts
    session: aiohttp.ClientSession

    @property
    def engine(self) -> TestEngine:
        return self.starts.engines[-1]

    async def complete(self, prompt: Sequence[int], **fields: Any) -> tuple[int, Any]:
        body = {
            "prompt": list(prompt),
            "max_tokens": COUNT,
            "ignore_eos": True,
            "temperature": 0,
            **fields,
        }
        async with self.session.post(f"{self.served.base}/completions", json=body) as response:
            return response.status, await response.json()

    async def text_of(self, prompt: Sequence[int], **fields: Any) -> str:
        status, answer = await self.complete(prompt, **fields)
        assert status == 200, answer
        text: str = answer["choices"][0]["text"]
        return text


@asynccontextmanager
async def started(path: Path, *names: str, **settings: Any) -> AsyncIterator[Started]:
    starts = RealStarts(path, slots=4)
    async with (
        aiohttp.ClientSession() as session,
        serving(None, drain_seconds=5.0, **settings) as served,
    ):
        for name in names or ("tiny",):
            served.gateway.fleet.add(starts.source(name), starts)
        await served.gateway.fleet.start()
        try:
            yield Started(served, starts, session)
        finally:
            starts.open_gates()
            await served.gateway.fleet.close()


@pytest.fixture(scope="module")
def texts(reference: Reference, tiny_package: Path) -> list[str]:
    """What the prompts are answered when nothing fails."""
    tokenizer = Tokenizer.load(tiny_package / "tokenizer.json")
    found = []
    for prompt in PROMPTS:
        decoder = StreamDecoder(tokenizer)
        found.append(decoder.push(reference.answer(prompt, COUNT)) + decoder.finish())
    return found


def at_prefill(rows: Sequence[Row]) -> bool:
    return any(row.past < len(PROMPTS[0]) for row in rows) and out_of_memory(rows)


def at_decode(rows: Sequence[Row]) -> bool:
    return any(row.past >= len(PROMPTS[0]) + 5 for row in rows) and out_of_memory(rows)


@pytest.mark.parametrize("broken", [at_prefill, at_decode])
@pytest.mark.parametrize("streams", [1, 4])
async def test_a_failed_run_is_503_and_the_package_is_loaded_again(
    tiny_package: Path,
    texts: list[str],
    broken: Callable[[Sequence[Row]], bool],
    streams: int,
) -> None:
    async with started(tiny_package) as it:
        first = it.engine
        first.target.broken = broken
        answers = await asyncio.gather(*(it.complete(prompt) for prompt in PROMPTS[:streams]))
        for status, answer in answers:
            assert status == 503
            assert answer["error"]["code"] == "device_error"
            assert "MatMul" not in answer["error"]["message"]
        again = await asyncio.gather(*(it.text_of(prompt) for prompt in PROMPTS[:streams]))
        assert again == texts[:streams]
        assert it.engine is not first
        assert len(it.starts.engines) == 2, "one failure, however many met it"
        (member,) = it.served.gateway.fleet
        assert (member.state, member.failures.total, member.problem) == ("loaded", 1, None)


async def test_answers_that_were_in_no_failed_run_go_on(
    tiny_package: Path, texts: list[str]
) -> None:
    async with started(tiny_package) as it:
        first = it.engine
        first.target.gate.clear()
        going = asyncio.create_task(it.text_of(PROMPTS[0]))
        await until(lambda: len(first.target.runs) == 1)
        # The first run has begun without the other; the one with both never comes: graphs for one
        # row alone are left.
        first.service._most_rows = 1
        first.target.broken = lambda rows: (
            int(rows[0].tokens[0]) == PROMPTS[1][0] and rows[0].past == 0 and out_of_memory(rows)
        )
        failing = asyncio.create_task(it.complete(PROMPTS[1]))
        first.target.gate.set()
        status, answer = await failing
        assert (status, answer["error"]["code"]) == (503, "device_error")
        assert await going == texts[0]
        assert await it.text_of(PROMPTS[1]) == texts[1]


async def test_a_failed_engine_is_freed(
    tiny_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What captures the log keeps the traceback, and that the engine.
    monkeypatch.setattr(logging.getLogger("gateway.fleet.member"), "disabled", True)
    async with started(tiny_package) as it:
        it.engine.target.broken = out_of_memory
        gone = weakref.ref(it.engine.target)
        buffer = weakref.ref(it.engine.pool_slots[0])
        assert (await it.complete(PROMPTS[0]))[0] == 503
        it.starts.engines.clear()
        assert (await it.complete(PROMPTS[0]))[0] == 200

        def is_free() -> bool:
            gc.collect()
            return gone() is None and buffer() is None

        await until(is_free)


async def test_a_drafter_that_fails_is_lost_alone(tiny_package: Path, reference: Reference) -> None:
    learned = FakeLearned(script=reference.answer(PLAIN_PROMPT, COUNT + 8))

    def fail() -> None:
        raise RuntimeException(OUT_OF_MEMORY)

    learned.before = fail
    async with started(tiny_package) as it:
        it.engine.drafters._learned = learned
        speculation = {"drafter": "eagle3", "policy": "fixed", "length": 3}
        plain = await it.text_of(PLAIN_PROMPT, speculation={"off": True})
        asked = (it.text_of(PLAIN_PROMPT, speculation=speculation) for _ in range(4))
        assert await asyncio.gather(*asked) == [plain] * 4
        _, status = await get(it.served, "/v1/status")
        (eagle3,) = [each for each in status["drafters"] if each["name"] == "eagle3"]
        assert eagle3["failures"] >= 1
        assert "Failed to allocate" in eagle3["problem"]
        assert (status["state"], len(it.starts.engines)) == ("loaded", 1)


async def test_the_other_package_goes_on_when_one_is_given_up(tiny_package: Path) -> None:
    async with started(tiny_package, "tiny", "other") as it:
        assert (await it.complete(PROMPTS[0], model="other"))[0] == 200
        fleet = it.served.gateway.fleet
        tiny = fleet.member("tiny")
        for _ in range(fleet.terms.failures - 1):
            tiny.failures.count()
        it.starts.engines[0].target.broken = out_of_memory
        assert (await it.complete(PROMPTS[0]))[0] == 503
        status, answer = await it.complete(PROMPTS[0])
        assert (status, answer["error"]["code"]) == (503, "package_failed")
        assert (await it.complete(PROMPTS[0], model="other"))[0] == 200
        assert (await get(it.served, "/ready"))[1] == {"status": "failed"}
        _, packages = await get(it.served, "/v1/packages")
        first, second = packages["data"]
        assert (first["state"], second["state"]) == ("failed", "loaded")
        assert "allocate memory" in first["problem"]


@pytest.mark.parametrize("streams", [1, 4])
async def test_a_hang_fails_its_answers_and_the_gateway_says_so(
    tiny_package: Path, texts: list[str], streams: int
) -> None:
    left: list[str] = []
    async with started(tiny_package, stuck_seconds=60.0, stuck_exit_seconds=30.0) as it:
        ahead = 0.0
        watch = Watch(it.served.gateway.fleet, left.append, lambda: time.monotonic() + ahead)
        first = it.engine
        first.target.gate.clear()
        asked = [asyncio.create_task(it.complete(prompt)) for prompt in PROMPTS[:streams]]
        await until(lambda: bool(first.target.runs))
        assert first.pulse.running_for(time.monotonic()) is not None
        watch.look()
        assert (await get(it.served, "/health"))[0] == 200
        ahead = 61.0
        watch.look()
        for status, answer in await asyncio.gather(*asked):
            assert (status, answer["error"]["code"]) == (503, "device_error")
        assert await get(it.served, "/health") == (503, {"status": "stuck"})
        assert await get(it.served, "/ready") == (503, {"status": "stuck"})
        status, answer = await it.complete(PROMPTS[0])
        assert (status, answer["error"]["code"]) == (503, "device_error")
        ahead = 95.0
        watch.look()
        assert len(left) == 1, "the process is to end"
        # Where it comes back after all, it is freed and loaded again.
        first.target.gate.set()
        await until(lambda: len(it.starts.engines) == 2)
        await until(lambda: not it.served.gateway.fleet.stuck)
        assert await it.text_of(PROMPTS[0]) == texts[0]
        assert (await get(it.served, "/health"))[0] == 200


async def test_a_socket_is_told_once_and_goes_on(tiny_package: Path) -> None:
    async with started(tiny_package) as it, socket_to(it.served) as socket:
        it.engine.target.broken = lambda rows: (
            any(row.past > 12 for row in rows) and out_of_memory(rows)
        )
        events = await ask(socket, input="hello", max_output_tokens=64, ignore_eos=True)
        assert [event["type"] for event in events].count("response.failed") == 1
        assert events[-1]["type"] == "response.failed"
        assert "device failed" in events[-1]["response"]["error"]["message"]
        again = await ask(socket, input="hello", max_output_tokens=4)
        assert again[-1]["type"] in ("response.completed", "response.incomplete")
