"""`outpace chat` as a process: in pipes, and in a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.__main__ import main
from gateway.commands.chat import summary
from models.sampling.parameters import Sampling
from tests.fake_engine import ENDLESS, FRESH_SEED, FakeEngine
from tests.http_serving import serving, until
from tests.patience import PATIENCE

ROOT = Path(__file__).parent.parent


async def piped(
    lines: str | bytes,
    *arguments: str,
    environment: dict[str, str] | None = None,
    out: int = asyncio.subprocess.PIPE,
) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "chat", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=out,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    async with asyncio.timeout(PATIENCE):
        given = lines if isinstance(lines, bytes) else lines.encode()
        said, error = await process.communicate(given)
    return process.returncode, (said or b"").decode(), error.decode()


async def test_instructions_in_another_encoding_are_sent_as_far_as_they_are_text() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        latin = os.fsdecode("é!".encode("latin-1"))
        status, out, _ = await piped("one\n", "--url", served.url, "--instructions", latin)
    assert (status, out) == (0, "yes\n")
    assert engine.prompt() == "<system>\ufffd!</><user>one</><assistant>"


async def test_a_line_is_a_turn_of_one_conversation() -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        status, out, notes = await piped(
            "one\n\ntwo\n/reset\n/off\nthree\n/on\nfour\n/quit\nfive\n",
            *("--url", served.url, "--instructions", "Be brief.", "--max-tokens", "9"),
        )
    assert (status, out) == (0, "yes\nyes\nyes\nyes\n")
    assert [engine.prompt(index) for index in range(4)] == [
        "<system>Be brief.</><user>one</><assistant>",
        "<system>Be brief.</><user>one</><assistant>yes</><user>two</><assistant>",
        "<system>Be brief.</><user>three</><assistant>",
        "<system>Be brief.</><user>three</><assistant>yes</><user>four</><assistant>",
    ]
    policies = [request.speculation.policy for request in engine.requests]
    assert policies == ["cost", "cost", "off", "cost"]
    assert [request.max_tokens for request in engine.requests] == [9] * 4
    assert notes.count("tau 0.75 | TPOT 1.5 ms | first token 3 ms | 3 tokens") == 4


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/rest please", "There is no command /rest. Did you mean /reset? /reset forgets, "),
        ("/bogus", "There is no command /bogus. /reset forgets, "),
        ("/\x1b[2J", "There is no command /[2J. /reset forgets, "),
    ],
)
async def test_a_command_that_is_not_known_is_named_beside_the_right_ones(
    line: str, told: str
) -> None:
    engine = FakeEngine("yes")
    async with serving(engine) as served:
        status, out, notes = await piped(f"{line}\none\n", "--url", served.url)
    assert (status, out, len(engine.requests)) == (1, "yes\n", 1)
    assert notes.startswith(told)
    for command in ("/reset", "/off", "/on", "/quit"):
        assert command in notes


async def test_the_flags_of_sampling_are_in_every_turn_and_the_seed_is_told() -> None:
    engine = FakeEngine("yes")
    flags = ("--temperature", "0.8", "--top-p", "0.9", "--seed", "-3")
    async with serving(engine) as served:
        status, _, notes = await piped("one\ntwo\n", "--url", served.url, *flags)
        assert status == 0
        assert [request.sampling for request in engine.requests] == [
            Sampling(temperature=0.8, top_p=0.9, seed=-3)
        ] * 2
        assert notes.count("| seed -3\n") == 2
        _, _, notes = await piped("one\n", "--url", served.url, "--temperature", "1")
        assert f"| seed {FRESH_SEED}\n" in notes
        _, _, notes = await piped("one\n", "--url", served.url, "--seed", "5")
        assert "seed" not in notes
        status, _, notes = await piped("one\n", "--url", served.url, "--temperature", "3")
        assert (status, notes) == (1, "error: temperature must be from 0 to 2, not 3.0.\n")


@pytest.mark.parametrize(
    "flags",
    [
        ("--temperature", "warm"),
        ("--temperature", "nan"),
        ("--top-p", "inf"),
        ("--seed", "1.5"),
        ("--seed", str(1 << 63)),
        ("--max-tokens", "9" * 5000),
    ],
)
def test_what_is_no_number_is_wrong_usage(
    flags: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["chat", *flags])
    assert left.value.code == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(f"outpace chat: argument {flags[0]}: '{flags[1][:40]}' is no ")


async def test_output_that_cannot_be_written_is_one_line() -> None:
    async with serving(FakeEngine("yes")) as served:
        full = os.open("/dev/full", os.O_WRONLY)
        status, _, error = await piped("one\n", "--url", served.url, out=full)
        os.close(full)
    assert status == 1
    assert error == "outpace chat: cannot write: No space left on device\n"


async def test_a_refused_turn_is_an_error_of_the_script_and_the_next_goes_on() -> None:
    async with serving(FakeEngine("yes")) as served:
        status, out, notes = await piped("refuse me\nhello\n", "--url", f"{served.base}/")
    assert (status, out) == (1, "yes\n")
    assert "error: the chat template refused the messages" in notes


async def test_text_that_no_encoding_fits_is_no_reason_to_fail() -> None:
    engine = FakeEngine("h\u00e9llo \u2603")
    async with serving(engine) as served:
        environment = {"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}
        status, out, _ = await piped(b"a\xffb\n", "--url", served.url, environment=environment)
    assert (status, out) == (0, "h?llo ?\n")
    assert engine.prompt() == "<user>a\ufffdb</><assistant>"


async def test_no_gateway_a_missing_key_and_a_wrong_address_are_one_line() -> None:
    async with serving(FakeEngine("yes"), api_keys=("right",)) as served:
        status, _, error = await piped("x\n", "--url", served.url)
        assert status == 1
        assert error.count("\n") == 1
        assert "OUTPACE_API_KEY" in error
        status, out, _ = await piped(
            "x\n", "--url", served.url, environment={"OUTPACE_API_KEY": "right"}
        )
        assert (status, out) == (0, "yes\n")
        away = served.url
    status, _, error = await piped("x\n", "--url", away)
    assert status == 1
    assert error.count("\n") == 1
    assert f"no gateway answers at {away}" in error
    assert "outpace serve" in error
    status, _, error = await piped("x\n", "--url", "not an address")
    assert (status, error.count("\n")) == (1, 1)


async def test_a_gateway_that_goes_away_ends_the_chat() -> None:
    engine = FakeEngine(ENDLESS, pace=0.02)
    async with serving(engine, drain_seconds=0) as served:
        chat = asyncio.create_task(piped("one\ntwo\n", "--url", served.url))
        await until(lambda: engine.running == 1)
        await served.runner.cleanup()
        status, _, error = await chat
    assert status == 1
    assert "the gateway closed the connection" in error


@dataclass(slots=True)
class Terminal:
    """A chat in a pseudo-terminal; `seen` is all that it has shown."""

    process: subprocess.Popen[bytes]
    handle: int
    seen: str = ""

    def type(self, text: str) -> None:
        os.write(self.handle, text.encode())

    async def shows(self, text: str, times: int = 1) -> None:
        await until(lambda: self.seen.count(text) >= times)

    async def asks(self) -> None:
        """The prompt is the last thing shown: what is typed before can be lost with the mode."""
        await until(lambda: self.seen.endswith("> "))

    async def ended(self) -> int | None:
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode


@asynccontextmanager
async def terminal(*arguments: str) -> AsyncIterator[Terminal]:
    handle, inner = pty.openpty()
    process = subprocess.Popen(  # noqa: ASYNC220 (asyncio's cannot give it the terminal)
        [sys.executable, "-m", "gateway", "chat", *arguments],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=ROOT,
        env={**os.environ, "TERM": "dumb"},
        start_new_session=True,
        preexec_fn=lambda: _control(inner),
    )
    os.close(inner)
    shown = Terminal(process, handle)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            shown.seen += os.read(handle, 4096).decode(errors="replace")
        except OSError:
            loop.remove_reader(handle)

    loop.add_reader(handle, read)
    try:
        yield shown
    finally:
        process.kill()
        process.wait()
        loop.remove_reader(handle)
        os.close(handle)


def _control(handle: int) -> None:
    """Make the terminal the controlling one, so that its Ctrl-C is a signal."""
    fcntl.ioctl(handle, termios.TIOCSCTTY, 0)


async def test_ctrl_c_cancels_the_answer_and_not_the_program() -> None:
    engine = FakeEngine("ab" * 10_000, pace=0.01)
    async with serving(engine) as served, terminal("--url", served.url) as shown:
        await shown.asks()
        shown.type("one\n")
        await shown.shows("abab")
        shown.type("\x03")
        await shown.shows("cancelled")
        await until(lambda: engine.running == 0)
        engine.answer = "done"
        await shown.asks()
        shown.type("\x03")
        await shown.shows("/quit leaves", 2)
        await shown.asks()
        shown.type("two\n")
        await shown.shows("done")
        await shown.shows("tau 1.00")
        await shown.asks()
        shown.type("\x04")
        assert await shown.ended() == 0
    assert "<user>one</><assistant>ab" in engine.prompt()
    assert engine.prompt().endswith("</><user>two</><assistant>")


async def test_what_a_model_says_cannot_move_the_cursor() -> None:
    engine = FakeEngine(["safe", "\x1b[2J\x07", "\ttext\r"])
    async with serving(engine) as served, terminal("--url", served.url) as shown:
        await shown.asks()
        shown.type("one\n")
        await shown.shows("tau")
        await shown.asks()
        shown.type("/quit\n")
        assert await shown.ended() == 0
    assert "safe[2J\ttext\r\n" in shown.seen


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"status": "failed"}, "tau - | TPOT - ms"),
        ({"status": "cancelled", "timings": {"tau": 2.346, "tpot_ms": None}}, "tau 2.35 | TPOT -"),
        ({"status": "cancelled", "timings": {}}, "| cancelled"),
        ({"timings": {"drafter": "ngram", "policy": "auto"}}, "| ngram, auto"),
        ({"timings": {"drafter": "off", "policy": "off"}}, "| speculation off"),
        ({"temperature": 0.5, "seed": 7, "status": "completed"}, "| seed 7"),
        ({"temperature": 0.5, "seed": 7, "status": "cancelled"}, "| seed 7 | cancelled"),
    ],
)
def test_the_summary_of_an_answer(response: dict[str, Any], expected: str) -> None:
    assert expected in summary(response)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("outpace ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["chat", "--max-token=3"], "there is no flag --max-token. Did you mean --max-tokens?"),
        (["top", "--onec"], "there is no flag --onec. Did you mean --once?"),
        (
            ["doctor", "--spekulation-policy", "off"],
            "there is no flag --spekulation-policy. Did you mean --speculation-policy?",
        ),
        (["top", "--zzz"], "there is no flag --zzz."),
    ],
)
def test_an_unknown_flag_names_the_nearest(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    told = f"outpace {arguments[0]}: {told} Help: outpace {arguments[0]} --help\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("command", ["chat", "top", "doctor"])
def test_an_unknown_variable_names_the_nearest(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPACE_API_KYE", "secret")
    assert main([command]) == 1
    told = capsys.readouterr().err
    assert "unknown setting 'OUTPACE_API_KYE'. Did you mean 'OUTPACE_API_KEY'?" in told
    assert "secret" not in told


def test_wrong_usage_is_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["fly"], ["serve", "--prot", "1"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.splitlines() == [
        "outpace: the following arguments are required: COMMAND. Help: outpace --help",
        "outpace: 'fly' is no command. Help: outpace --help",
        "outpace serve: there is no flag --prot. Did you mean --port? Help: outpace serve --help",
    ]
