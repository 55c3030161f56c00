"""What the commands share that look at the packages of a running gateway, and change them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from gateway.client import no_connection
from gateway.commands.connecting import api_key
from models.errors import UserError

LOAD_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""Loading may take minutes, and says nothing until it ended."""


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="NAME", help="the package, as outpace ps names it")


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="load it whether or not it seems to fit into memory"
    )


def api_url(url: str, path: str) -> str:
    base = url if "://" in url else f"http://{url}"
    return f"{base.rstrip('/').removesuffix('/v1')}/v1/{path}"


def packages_of(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    """Raises `UserError` that says why nothing is known of them."""
    answer = asyncio.run(_ask(parsed.url, api_key(parsed), "packages", None))
    found: list[dict[str, Any]] = answer["data"]
    return found


def change(parsed: argparse.Namespace, what: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Have a package loaded, unloaded or switched to; how it is then. Raises `UserError`."""
    return asyncio.run(_ask(parsed.url, api_key(parsed), f"packages/{what}", document))


async def _ask(
    url: str, key: str | None, path: str, document: Mapping[str, Any] | None
) -> dict[str, Any]:
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
