"""`outpace top`: one frame, the live view, and why there is none."""

from __future__ import annotations

import asyncio
import io
import re
from typing import Any

import pytest
from rich.console import Console

from gateway.__main__ import main
from gateway.commands import top
from gateway.commands.top import look, status_url, watch
from gateway.commands.top_view import MOST_COSTS, MOST_STREAMS, frame
from models.errors import UserError
from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import serving, socket_to, until


def console() -> Console:
    return Console(file=io.StringIO(), width=120, force_terminal=False)


def drawn(status: dict[str, Any], before: dict[str, Any] | None = None, seconds: float = 0) -> str:
    made = console()
    made.print(frame(status, before, seconds))
    return said(made)


def said(made: Console) -> str:
    assert isinstance(made.file, io.StringIO)
    return made.file.getvalue()


def a_stream(number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "request_id": f"req_{number}",
        "key": "0123abcd",
        "path": "/v1/responses",
        "ms": 2500.0,
        "tokens": 40,
        "tau": 1.834,
        "drafter": "ngram+eagle3",
        **more,
    }


STATUS: dict[str, Any] = {
    "model": "smollm2",
    "device": "cpu",
    "exact": True,
    "policy": "cost",
    "drafter": "ngram+eagle3",
    "memory_bytes": 700 << 20,
    "slots": 4,
    "running": 3,
    "waiting": 2,
    "kv_tokens": 1024,
    "context_length": 2048,
    "run_ms": {"1": 10.0, "4": 12.5, "16": 21.0},
    "costs": {"overhead_ms": 0.42},
    "requests": [a_stream()],
    "drafters": [
        {"name": "ngram", "loaded": True, "draft_n": 0, "draft_n_accepted": 0},
        {
            "name": "eagle3",
            "loaded": True,
            "draft_n": 80,
            "draft_n_accepted": 60,
            "survival": [0.8, 0.55],
            "run_ms": {"1": 1.25, "4": 3.0},
            "failures": 2,
            "problem": "out of memory",
        },
    ],
}


def line_of(text: str, *words: str) -> str:
    (line,) = [line for line in text.splitlines() if all(word in line for word in words)]
    return line.rstrip()


def test_a_frame_has_streams_slots_queue_acceptance_and_costs() -> None:
    text = drawn(STATUS)
    assert line_of(text, "smollm2").split(" | ")[1:4] == ["cpu", "exact", "policy cost"]
    assert line_of(text, "slots").endswith("3 of 4, 2 waiting")
    assert line_of(text, "K/V").endswith("1024 of 8192 tokens, 12%")
    assert line_of(text, "req_1").split() == [
        *("req_1", "0123abcd", "/v1/responses", "2.5", "40", "-", "1.83", "ngram+eagle3"),
    ]
    assert line_of(text, "eagle3", "failures").split()[:6] == [
        *("eagle3", "80", "60", "0.75", "0.80", "0.55"),
    ]
    assert "2 failures: out of memory" in text
    assert ["ngram", "0", "0", "-"] in [line.split() for line in text.splitlines()]
    assert line_of(text, "12.50").split()[:3] == ["4", "12.50", "1.25"]
    assert "a round takes 0.42 ms" in text


def test_rates_are_those_since_the_last_look() -> None:
    before = {**STATUS, "requests": [a_stream(tokens=10), a_stream(2, tokens=5)]}
    line = line_of(drawn(STATUS, before, 2.0), "req_1")
    assert line.split()[5] == "15.0"


def test_an_idle_gateway_and_an_empty_status_can_be_drawn() -> None:
    assert "no requests" in drawn({**STATUS, "requests": []})
    assert "no run was measured" in drawn({})


def test_many_streams_and_costs_are_cut_to_what_fits() -> None:
    requests = [a_stream(number) for number in range(MOST_STREAMS + 5)]
    costs = {str(tokens): float(tokens) for tokens in range(1, 65)}
    text = drawn({**STATUS, "requests": requests, "run_ms": costs})
    assert text.count("req_") == MOST_STREAMS
    assert "and 5 more" in text
    widths = [int(found) for found in re.findall(r"(?m)^ *(\d+) +\d+\.\d\d +\d+\.\d\d ", text)]
    assert len(widths) == MOST_COSTS
    assert (widths[0], widths[-1]) == (1, 64)


def test_what_a_gateway_says_cannot_move_the_cursor_or_mark_text() -> None:
    odd = "[bold]x[/]\x1b[2J\x07"
    text = drawn({**STATUS, "model": odd, "requests": [a_stream(request_id=odd, path=odd)]})
    assert "[bold]x[/]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    "url", ["http://h:1", "h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"]
)
def test_where_the_status_is(url: str) -> None:
    assert status_url(url) == "http://h:1/v1/status"


async def test_one_frame_of_a_running_gateway() -> None:
    engine, made = FakeEngine(ENDLESS, pace=0.01), console()
    async with serving(engine, api_keys=("right",)) as served:
        headers = {"Authorization": "Bearer right"}
        async with socket_to(served, headers=headers) as socket:
            await socket.send_json({"type": "response.create", "input": "x"})
            await until(lambda: any(trace.tokens for trace in served.gateway.traces))
            await watch(served.url, "right", 1.0, once=True, console=made)
        with pytest.raises(UserError, match="asks for a valid API key: set OUTPACE_API_KEY"):
            await watch(served.url, "wrong", 1.0, once=True, console=made)
    text = said(made)
    assert "tiny-test" in text
    assert "/v1/responses" in text
    assert "1 of 4" in text


@pytest.mark.parametrize("columns", [None, "60", "20"])
async def test_what_is_piped_has_a_line_for_each_thing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str | None
) -> None:
    survival = [0.01] * 31
    drafter = {**STATUS["drafters"][1], "survival": survival, "problem": "p" * 2000}
    requests = [a_stream(n, request_id=f"req_{n}" + "r" * 80, path="/p" * 60) for n in range(9)]
    status = {**STATUS, "model": "m" * 150, "drafters": [drafter], "requests": requests}

    async def found(*arguments: Any) -> dict[str, Any]:
        return status

    monkeypatch.setattr(top, "look", found)
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    await watch("http://h:1", None, 1.0, once=True)
    lines = capsys.readouterr().out.splitlines()
    # Head, two bars, nine streams, a drafter and three costs, with three heads, their gaps and a
    # last line.
    assert len(lines) == 1 + 2 + 9 + 1 + 3 + 3 + 3 + 1
    assert all(line == line.rstrip() for line in lines)
    if columns is None:
        assert lines[0].startswith("m" * 150 + " | cpu | exact | ")
        assert sum("/p" * 60 in line and line.endswith("eagle3") for line in lines) == 9
        assert any(" ".join(["0.01"] * 31) in line and "p" * 2000 in line for line in lines)
    else:
        assert max(map(len, lines)) <= int(columns)
        assert lines[0].endswith("…")


async def test_the_live_view_goes_on_when_the_gateway_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    async def sometimes(*arguments: Any) -> dict[str, Any]:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise UserError("no gateway answers", code="gateway_unreachable")
        return STATUS

    monkeypatch.setattr(top, "look", sometimes)
    made = Console(file=io.StringIO(), width=120, force_terminal=True)
    watching = asyncio.create_task(watch("http://h:1", None, 0.001, once=False, console=made))
    await until(lambda: looks >= 4)
    watching.cancel()
    await asyncio.wait([watching])
    text = said(made)
    assert "no gateway answers" in text
    assert text.rindex("smollm2") > text.index("no gateway answers")


async def test_something_else_than_a_gateway_is_said_in_plain_words() -> None:
    import aiohttp

    async with aiohttp.ClientSession() as session:
        with pytest.raises(UserError, match=r"no gateway answers at .*:1 \(connection refused\)"):
            await look(session, "http://127.0.0.1:1")
        with pytest.raises(UserError, match="is not a URL like"):
            await look(session, "ftp://127.0.0.1")


def test_the_command_says_why_there_is_nothing_to_see(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--url", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.startswith("outpace top: no gateway answers at ")


@pytest.mark.parametrize("seconds", ["0", "x", "-1", "99999"])
def test_an_interval_is_a_number_of_seconds(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["top", "--interval", seconds])
    assert left.value.code == 2
    assert "is no number of seconds from 0.1 to 3600" in capsys.readouterr().err


def test_several_packages_have_a_table_and_one_has_none() -> None:
    package = {
        "id": "smollm2",
        "state": "loaded",
        "default": True,
        "needs_bytes": 700 << 20,
        "memory_bytes": 700 << 20,
        "requests": 2,
        "waiting": 0,
        "idle_seconds": None,
        "keep_alive": -1,
        "failures": 0,
        "problem": None,
    }
    other = {**package, "id": "other", "state": "unloaded", "default": False, "memory_bytes": 0}
    assert "unloaded" not in drawn({**STATUS, "packages": [package]})
    text = drawn({**STATUS, "packages": [package, other]})
    assert "smollm2 (default)" in text
    assert "unloaded" in text
