"""What the commands share that look at the packages of a running gateway, and change them."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from gateway.client import no_connection
from gateway.commands.chat import DEFAULT_URL
from models.errors import UserError

LOAD_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""Loading may take minutes, and says nothing until it ended."""


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=os.environ.get("OUTPACE_URL", DEFAULT_URL),
        help=f"the gateway (default: $OUTPACE_URL, else {DEFAULT_URL}); its key: $OUTPACE_API_KEY",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="NAME", help="the package, as outpace ps names it")


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="load it whether or not it seems to fit into memory"
    )


def api_url(url: str, path: str) -> str:
    base = url if "://" in url else f"http://{url}"
    return f"{base.rstrip('/').removesuffix('/v1')}/v1/{path}"


def packages_of(url: str) -> list[dict[str, Any]]:
    """Raises `UserError` that says why nothing is known of them."""
    answer = asyncio.run(_ask(url, "packages", None))
    found: list[dict[str, Any]] = answer["data"]
    return found


def change(url: str, what: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Have a package loaded, unloaded or switched to; how it is then. Raises `UserError`."""
    return asyncio.run(_ask(url, f"packages/{what}", document))


async def _ask(url: str, path: str, document: Mapping[str, Any] | None) -> dict[str, Any]:
    key = os.environ.get("OUTPACE_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    method = "GET" if document is None else "POST"
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=LOAD_TIMEOUT) as session,
            session.request(method, api_url(url, path), json=document) as response,
        ):
            answer = orjson.loads(await response.read())
            if response.status == 401:
                response.raise_for_status()
    except (aiohttp.ClientError, OSError, TimeoutError, UnicodeError, ValueError) as error:
        raise no_connection(url, error) from None
    if not isinstance(answer, dict):
        raise no_connection(url, ValueError("it answers with something else than a document"))
    if "error" in answer:
        raise UserError(str(answer["error"].get("message")), code="gateway_refused")
    return answer
