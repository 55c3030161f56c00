"""Watch a running gateway: streams, slots, queue, acceptance, costs."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import aiohttp
import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gateway.client import no_connection
from gateway.commands.connecting import add_gateway
from gateway.commands.connecting import api_key as key_of
from gateway.commands.drawing import output_console, show
from gateway.commands.packages import api_url
from gateway.commands.top_view import frame
from models.errors import UserError

LEAST_SECONDS, MOST_SECONDS = 0.1, 3600.0
TIMEOUT = aiohttp.ClientTimeout(total=10)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_gateway(parser)
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks"
    )
    parser.add_argument("--once", action="store_true", help="print one frame and leave")


def run(parsed: argparse.Namespace) -> int:
    asyncio.run(watch(parsed.url, key_of(parsed), parsed.interval, once=parsed.once))
    return 0


async def watch(
    url: str, api_key: str | None, seconds: float, *, once: bool, console: Console | None = None
) -> None:
    """Until it is interrupted; with `once` for one frame. Raises `UserError` where the first look
    fails; later ones say so and are tried again."""
    console = console or output_console()
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    async with aiohttp.ClientSession(headers=headers, timeout=TIMEOUT) as session:
        status, looked = await look(session, url), time.monotonic()
        if once:
            show(frame(status, None, 0.0), console)
            return
        with Live(frame(status, None, 0.0), console=console, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(seconds)
                try:
                    before, status = status, await look(session, url)
                except UserError as error:
                    live.update(Text(error.message, style="red"), refresh=True)
                    continue
                now = time.monotonic()
                live.update(frame(status, before, now - looked), refresh=True)
                looked = now


async def look(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """The gateway's status. Raises `UserError` that says why there is none."""
    try:
        async with session.get(status_url(url)) as response:
            response.raise_for_status()
            status = orjson.loads(await response.read())
    except (aiohttp.ClientError, OSError, TimeoutError, UnicodeError, ValueError) as error:
        raise no_connection(url, error) from None
    if not isinstance(status, dict):
        raise no_connection(url, ValueError("it answers with something else than a status"))
    return status


def status_url(url: str) -> str:
    return api_url(url, "status")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not LEAST_SECONDS <= value <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no number of seconds from {LEAST_SECONDS} to {MOST_SECONDS:g}"
        )
    return value
