"""Bad company: a small storm on the tiny package, and what is made of its figures."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.client import Arrival, GatewayError
from bench.raw_socket import opened
from bench.storm.figures import findings
from bench.storm.garbage import http_garbage, socket_garbage
from bench.storm.plan import Plan
from bench.storm.watching import Logged, Memory, logged
from bench.storm.weather import Outcome, Window, common_span, tpot_within
from tests.fake_engine import FakeEngine
from tests.http_serving import ask, serving, socket_to

PLAN = Plan(connections=500, generating=8, windows=2, tokens=192, every=5.0, seed=0)
MIB = 1 << 20


def test_the_shares_of_a_crowd() -> None:
    assert (PLAN.stalling, PLAN.dropping, PLAN.garbling, PLAN.idle) == (100, 100, 100, 192)
    assert PLAN.strangers == 492


def window(storm: bool, *tpot_ms: float) -> Window:
    return Window(storm, seconds=1.0, tpot_ms=tpot_ms, connections=500 if storm else 8)


OUTCOME = Outcome(
    windows=(
        window(False, 10.0, 12.0),
        window(True, 11.0, 12.0),
        window(False, 10.0, 10.0),
        window(True, 11.0, 11.0),
    ),
    resident=(100 * MIB, 120 * MIB, 130 * MIB),
    memory=Memory([(0.0, 100 * MIB), (1.0, 150 * MIB)]),
    slots=8,
    free=(8, 8),
    waiting=(0, 0),
    acts=Counter({"pieces of garbage": 3}),
    log=(
        Logged("info", "gateway.http.app", "fine"),
        Logged("error", "aiohttp.server", "Error handling request from 127.0.0.1"),
    ),
    gateway_cpu=1.0,
    bench_cpu=0.5,
)


def statuses(outcome: Outcome) -> list[bool | None]:
    return [promise.held for promise in findings(PLAN, outcome).promises]


def test_what_holds() -> None:
    found = findings(PLAN, OUTCOME)
    assert found.held
    # Of 11.5 over 11 and 11 over 10.
    assert found.figures["ratios"] == pytest.approx([11.5 / 11, 1.1])
    assert found.figures["ratio"] == pytest.approx((11.5 / 11 + 1.1) / 2)
    assert [round(promise.measured or 0, 3) for promise in found.promises] == [
        round((11.5 / 11 + 1.1) / 2, 3),
        0,
        10,
        round(50 * 1024 / 492, 3),
        0,
    ]
    assert found.figures["log"] == {"info": 1, "error, of a client": 1}
    json.dumps(found.figures)


@pytest.mark.parametrize(
    ("broken", "which"),
    [
        ({"windows": (window(False, 10.0), window(True, 11.1))}, 0),
        ({"free": (8, 7)}, 1),
        ({"waiting": (0, 1)}, 1),
        ({"resident": (100 * MIB, 120 * MIB, 141 * MIB)}, 2),
        ({"memory": Memory([(0.0, 230 * MIB)])}, 3),
        ({"log": (Logged("warning", "gateway.http.guard", "oh"),)}, 4),
        ({"log": (Logged("error", "asyncio", "Task exception was never retrieved"),)}, 4),
    ],
)
def test_what_breaks_a_promise(broken: dict[str, Any], which: int) -> None:
    expected: list[bool | None] = [True] * 5
    expected[which] = False
    assert statuses(replace(OUTCOME, **broken)) == expected


@pytest.mark.parametrize(
    ("resident", "growth"),
    [((50, 70), 0), ((50, 70, 80), 10), ((50, 70, 75, 78), 3), ((50, 70, 80, 85, 89), 9)],
)
def test_growth_is_that_of_the_later_storms(resident: tuple[int, ...], growth: int) -> None:
    outcome = replace(OUTCOME, resident=tuple(size * MIB for size in resident))
    assert findings(PLAN, outcome).promises[2].measured == growth


def test_time_per_token_while_all_stream() -> None:
    first = [Arrival(at, 1, 0, 0) for at in (1.0, 1.1, 1.2, 1.3, 1.4)]
    second = [Arrival(at, 2, 0, 0) for at in (1.15, 1.25, 1.35, 1.45)]
    begin, end = common_span([first, second])
    assert (begin, end) == (1.15, 1.4)
    assert tpot_within(first, begin, end) == pytest.approx(100)
    assert tpot_within(second, begin, end) == pytest.approx(50)
    with pytest.raises(GatewayError, match="too short"):
        tpot_within(first, 1.35, 1.45)


def test_lines_of_a_log_as_text_and_as_json() -> None:
    text = "\n".join(
        [
            "outpace: ready on http://127.0.0.1:1/v1",
            "2026-01-02 03:04:05,678 INFO gateway.engine.engine: loading",
            "2026-01-02 03:04:05,678 ERROR aiohttp.server: Error handling request",
            "Traceback (most recent call last):",
            '  File "x", line 1',
            '{"time": "t", "level": "warning", "logger": "gateway", "message": "m", "more": 1}',
            "{no json",
            '{"level": 1}',
        ]
    )
    assert list(logged(text)) == [
        Logged("info", "gateway.engine.engine", "loading"),
        Logged("error", "aiohttp.server", "Error handling request"),
        Logged("warning", "gateway", "m"),
    ]
    assert [line.is_error for line in logged(text)] == [False, True, True]
    assert [line.of_a_client for line in logged(text)] == [False, True, False]


async def test_garbage_is_survived() -> None:
    chance = random.Random(1)
    async with serving(FakeEngine("fine")) as served:
        for _ in range(150):
            async with opened(served.url) as client:
                await client.raw(socket_garbage(chance))
                try:
                    await client.ping(b"there")
                    while (await client.receive())[1] != b"there":
                        pass
                except (EOFError, ConnectionError):
                    continue  # closed, as it may be
        async with socket_to(served) as socket:
            assert (await ask(socket, input="x"))[-1]["type"] == "response.completed"
    assert len({http_garbage(chance) for _ in range(200)}) > 5


def test_a_small_storm(tiny_package: Path, tmp_path: Path) -> None:
    """No time is asserted: the target is too small for one."""
    file = tmp_path / "storm.json"
    arguments = ["--package", str(tiny_package), "--threads", "1", "--json", str(file)]
    arguments += ["--connections", "40", "--generating", "2", "--windows", "2"]
    arguments += ["--tokens", "150", "--every", "0.2"]
    assert main(["storm", *arguments]) in (0, 1)
    report = json.loads(file.read_text())
    figures = report["figures"]
    assert [window["storm"] for window in figures["windows"]] == [False, True] * 2
    assert all(len(window["tpot_ms"]) == 2 for window in figures["windows"])
    crowds = [window["connections"] for window in figures["windows"] if window["storm"]]
    assert min(crowds) > 30
    assert figures["free_slots"] == [2, 2]
    assert figures["acts"]["pieces of garbage"] > 0
    assert figures["acts"]["messages of clients that stall"] > 0
    held = {promise["name"]: promise["status"] for promise in report["promises"]}
    assert held["slots lost, requests left waiting"] == "held"
    assert held["errors in the log that are not about the storm's clients"] == "held"
    assert figures["errors"] == []


def test_what_makes_no_storm(tiny_package: Path) -> None:
    common = ["storm", "--package", str(tiny_package)]
    assert main([*common, "--connections", "9", "--generating", "8"]) == 2
    assert main([*common, "--windows", "0"]) == 2
    assert main([*common, "--every", "0"]) == 2
