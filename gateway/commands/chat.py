"""Chat in the terminal with a running gateway.

The event loop runs in a thread of its own: it answers the gateway's pings while the terminal waits
for a line, and Ctrl-C always reaches the main thread, where it cancels the answer and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from gateway.client import Chat, RequestError, connect
from gateway.commands.connecting import add_gateway, api_key
from models.nearest import meant
from models.sampling.parameters import LEAST_SEED, MOST_SEED

NAMES = ("/reset", "/off", "/on", "/quit", "/exit")
COMMANDS = "/reset forgets, /off and /on switch speculation, /quit leaves (or Ctrl-D)"
# What a model says must not move the cursor or rename the window.
CONTROLS = dict.fromkeys(code for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t")

Call = Callable[[Any], "Future[Any]"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gateway(parser)
    parser.add_argument("--instructions", metavar="TEXT", help="system message of every turn")
    parser.add_argument("--max-tokens", type=_integer, metavar="N", help="longest answer")
    parser.add_argument(
        "--temperature", type=_number, metavar="X", help="0 takes the most likely token, 1 samples"
    )
    parser.add_argument(
        "--top-p", type=_number, metavar="X", help="sample from the most likely tokens only"
    )
    parser.add_argument(
        "--seed", type=_integer, metavar="N", help="draws the same answer to the same question"
    )


def run(parsed: argparse.Namespace) -> int:
    for stream in (sys.stdin, sys.stdout):
        # Neither what is piped in nor what a model says need fit the terminal's encoding.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with background_loop() as call:
        chat: Chat = call(
            connect(
                parsed.url,
                api_key=api_key(parsed),
                fields=_fields(parsed),
            )
        ).result()
        try:
            return Terminal(chat, call).run()
        finally:
            call(chat.close()).result()


def _fields(parsed: argparse.Namespace) -> dict[str, Any]:
    fields = {
        "instructions": _readable(parsed.instructions),
        "max_output_tokens": parsed.max_tokens,
        "temperature": parsed.temperature,
        "top_p": parsed.top_p,
        "seed": parsed.seed,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _integer(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not LEAST_SEED <= value <= MOST_SEED:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number of 64 bits")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number")
    return value


def _readable(argument: str | None) -> str | None:
    """An argument in another encoding, with U+FFFD where it is not UTF-8."""
    return None if argument is None else os.fsencode(argument).decode(errors="replace")


class Terminal:
    """Lines in, answers out. A line is a turn, or a command if it begins with a slash."""

    def __init__(self, chat: Chat, call: Call) -> None:
        self._chat = chat
        self._call = call
        self._interactive = sys.stdin.isatty()
        self._styled = sys.stdout.isatty()
        self._failed = False

    def run(self) -> int:
        """Returns 1 when a turn or a command of a script failed; a person has seen the error."""
        if self._interactive:
            self._enable_editing()
            self._note(COMMANDS)
        while (line := self._read()) is not None:
            if line.startswith("/"):
                if line in ("/quit", "/exit"):
                    break
                self._command(line)
            elif line:
                self._turn(line)
        return 1 if self._failed and not self._interactive else 0

    def _read(self) -> str | None:
        while True:
            try:
                return input("> " if self._interactive else "").strip()
            except EOFError:
                if self._interactive:
                    print()
                return None
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                print()
                self._note(COMMANDS)

    def _command(self, line: str) -> None:
        if line == "/reset":
            self._chat.reset()
            self._note("a new conversation")
        elif line in ("/off", "/on"):
            self._chat.speculate = line == "/on"
            self._note(f"speculation {line.removeprefix('/')}")
        else:
            name = _plain(line.split()[0])
            unknown = f"There is no command {name}.{meant(name, NAMES)}"
            self._note(f"{unknown} {COMMANDS}")
            self._failed = True

    def _turn(self, line: str) -> None:
        answer = self._call(self._chat.ask(line, self._write))
        while True:
            try:
                response = answer.result()
            except KeyboardInterrupt:
                self._call(self._chat.cancel())
            except RequestError as error:
                self._failed = True
                print(f"error: {error}", file=sys.stderr, flush=True)
                return
            else:
                print(flush=True)
                self._note(summary(response))
                return

    def _write(self, text: str) -> None:
        if self._styled:
            text = text.translate(CONTROLS)
        sys.stdout.write(text)
        sys.stdout.flush()

    def _note(self, text: str) -> None:
        """Beside the conversation: dimmed in a terminal, on stderr for scripts."""
        if self._interactive and self._styled:
            print(f"\x1b[2m{text}\x1b[0m", flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _enable_editing(self) -> None:
        try:
            import readline  # noqa: F401  (its import gives `input` editing and history)
        except ImportError:
            return


def _plain(text: str) -> str:
    return text.translate(CONTROLS)[:40]


def summary(response: dict[str, Any]) -> str:
    """One line of what speculation did for an answer, and how to draw it again."""
    timings, usage = response.get("timings") or {}, response.get("usage") or {}
    parts = [
        f"tau {_figure(timings.get('tau'), '.2f')}",
        f"TPOT {_figure(timings.get('tpot_ms'), '.1f')} ms",
        f"first token {_figure(timings.get('ttft_ms'), '.0f')} ms",
        f"{usage.get('output_tokens', 0)} tokens",
        f"drafts accepted {_accepted(timings)}",
        "speculation off"
        if timings.get("policy") == "off"
        else f"{timings.get('drafter', '?')}, {timings.get('policy', '?')}",
    ]
    if response.get("temperature"):
        parts.append(f"seed {response.get('seed')}")
    if response.get("status") != "completed":
        parts.append(str(response.get("status")))
    return " | ".join(parts)


def _accepted(timings: dict[str, Any]) -> str:
    """Of all drafters, and of each where there were several."""
    by_drafter = timings.get("by_drafter") or {}
    shares = [
        f"{name} {each.get('draft_n_accepted', 0)} of {each.get('draft_n', 0)}"
        for name, each in by_drafter.items()
    ]
    total = f"{timings.get('draft_n_accepted', 0)} of {timings.get('draft_n', 0)}"
    return total if len(shares) < 2 else f"{total} ({', '.join(shares)})"


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


@contextmanager
def background_loop() -> Iterator[Call]:
    """Runs coroutines in a thread; what is left when the block ends is cancelled."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="connection", daemon=True)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop)
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
