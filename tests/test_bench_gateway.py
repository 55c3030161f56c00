"""The suites that start a gateway of their own, on the tiny package. No time is asserted."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from bench import overhead
from bench.__main__ import main
from bench.client import Client, GatewayError, connect, connected
from bench.gateway_process import running_gateway
from bench.prompts import Question
from bench.setup import Setup
from bench.texts import Texts
from models.errors import UserError
from models.package import load_package
from tests.fake_engine import FakeEngine
from tests.http_serving import serving


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    turns = ["the cat and the hat", "to be or not to be", "an apple on a tree"]
    file.write_text("".join(json.dumps({"turns": [turn]}) + "\n" for turn in turns))
    return file


def measured(suite: str, package: Path, prompts: Path, *more: str) -> dict[str, Any]:
    file = prompts.parent / "report.json"
    common = ["--package", str(package), "--prompts", str(prompts), "--json", str(file)]
    assert main([suite, *common, "--threads", "1", *more]) in (0, 1)
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def status_of(report: Mapping[str, Any], name: str) -> str:
    status: str = next(item["status"] for item in report["promises"] if item["name"] == name)
    return status


def test_speed_times_every_setting_of_every_prompt(tiny_package: Path, prompts: Path) -> None:
    more = ("--lengths", "0,auto,4", "--max-tokens", "24", "--repeats", "2")
    report = measured("speed", tiny_package, prompts, *more)
    samples = report["figures"]["samples"]
    assert len(samples) == 3 * 3 * 2
    assert status_of(report, "answers that differ between settings") == "held"
    assert {item["draft_n"] for item in samples if item["setting"] == "off"} == {0}
    assert sum(item["draft_n"] for item in samples if item["setting"] == "4") > 0
    assert all(item["tpot_ms"] > 0 for item in samples if len(item["ids"]) >= 8)
    assert [cell["setting"] for cell in report["figures"]["cells"]] == ["off", "auto", "4"]


def test_overhead_compares_the_same_number_of_tokens(tiny_package: Path, prompts: Path) -> None:
    more = ("--past", "60,120", "--max-tokens", "16", "--repeats", "2")
    report = measured("overhead", tiny_package, prompts, *more)
    pairs = report["figures"]["pairs"]
    assert len(pairs) == 4
    assert [length["past"] for length in report["figures"]["lengths"]] == sorted(
        {pair["past"] for pair in pairs}
    )
    assert all(pair["tokens"] == 16 and pair["raw_ms"] > 0 < pair["gateway_ms"] for pair in pairs)
    pasts = [pair["past"] for pair in pairs]
    assert pasts == pytest.approx([60, 60, 120, 120], abs=8)


def test_prefix_finds_the_first_turn_again(tiny_package: Path, prompts: Path) -> None:
    report = measured("prefix", tiny_package, prompts, "--tokens", "150", "--repeats", "2")
    conversations = report["figures"]["conversations"]
    assert len(conversations) == 2
    assert status_of(report, "next turns that lost the prefix") == "held"
    for turn in conversations:
        assert 140 <= turn["first_tokens"] <= 150
        assert turn["first_cached"] < turn["first_tokens"] / 2
        assert turn["second_cached"] >= turn["first_tokens"]


def test_kills_leave_every_slot_free(tiny_package: Path, prompts: Path) -> None:
    report = measured("kills", tiny_package, prompts, "--kills", "6", "--warm-up", "4")
    figures = report["figures"]
    # a wave for each half of the kills, four probes behind each
    assert len(figures["queue_ms"]) == 4 * 2
    assert figures["refused"] == 0
    assert len(figures["resident_bytes"]) == 3
    assert status_of(report, "probes refused") == "held"


def setup(package: Path) -> Setup:
    return Setup(load_package(package), [Question("1", "all", ("a",))], threads=1)


async def test_the_client_sees_ids_and_raises_what_the_gateway_refuses(tiny_package: Path) -> None:
    async with running_gateway(setup(tiny_package)) as gateway:
        async with connected(gateway.url) as client:
            answer = await client.ask("hello", max_tokens=12, provenance=True)
            assert len(answer.ids) == answer.tokens > 0
            assert answer.timings["rounds"] > 0
            with pytest.raises(GatewayError, match="context_length_exceeded"):
                await client.ask("word " * 500, max_tokens=4)
            with pytest.raises(GatewayError, match="speculation"):
                await client.ask("hello", max_tokens=4, speculation={"policy": "never"})
            again = await client.ask("hello", max_tokens=12, provenance=True)
            assert again.ids == answer.ids
        victim = await connect(gateway.url)
        await victim.kill()
        with pytest.raises(GatewayError, match="closed"):
            await victim.event()


async def test_a_gateway_that_does_not_start_is_quoted(tiny_package: Path) -> None:
    with pytest.raises(UserError, match="context") as refused:
        async with running_gateway(setup(tiny_package), context=1 << 20):
            pass
    assert refused.value.code == "gateway_failed"


def test_texts_of_a_length_are_as_long_as_asked(tiny_package: Path) -> None:
    texts = Texts(load_package(tiny_package))
    for wanted in (60, 150):
        text = texts.of_length("Say this again.", ["the cat", "and a hat"], wanted)
        assert text.startswith("Say this again.\n\nthe cat and a hat the cat")
        assert wanted - 8 <= len(texts.ids(text)) <= wanted
    assert texts.of_length("Say this again.", ["the cat"], 1) == "Say this again."


async def test_a_socket_that_was_closed_is_the_gateways_failure() -> None:
    async with serving(FakeEngine("yes")) as served, connected(served.url) as client:
        await client._ws.close()
        with pytest.raises(GatewayError, match="the socket was closed"):
            await client.ask("one", max_tokens=4)


async def test_no_socket_waits_for_raw_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def watched(url: str) -> AsyncIterator[Client]:
        async with connected(url) as client:
            yield client
        steps.append("closed")

    class Raw:
        prepared = False

        def prepare(self, past: int, tokens: int) -> None:
            steps.append("prepared")

        def tpot_ms(self) -> float:
            steps.append("run")
            return 1.0

    monkeypatch.setattr(overhead, "connected", watched)
    async with serving(FakeEngine("yes")) as served:
        pair = await overhead._pair(served.url, cast(Any, Raw()), "one", 4, 0)
    assert pair.raw_ms == 1.0
    assert steps == ["closed", "prepared", "run"]


def test_a_terminated_suite_leaves_no_gateway(tiny_package: Path, prompts: Path) -> None:
    command = [sys.executable, "-m", "bench", "prefix", "--threads", "1", "--tokens", "60"]
    command += ["--package", str(tiny_package), "--prompts", str(prompts), "--repeats", "100000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        ready = next(line for line in bench.stderr if "ready on" in line)
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(60) == 130
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(("127.0.0.1", int(ready.rpartition(":")[2]))),
    ):
        pass
