"""A conversation with a running gateway, over its WebSocket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import gaierror
from typing import Any

import aiohttp
import orjson

from models.errors import UserError

# More than a gateway reads in one message: it would close the connection.
TOO_LONG = 1 << 20
ENDINGS = ("response.completed", "response.incomplete", "response.failed")


class RequestError(Exception):
    """The gateway refused or failed one turn; the conversation goes on."""


class Chat:
    """One conversation; `fields` are in every request. `speculate` False: plain decoding."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        socket: aiohttp.ClientWebSocketResponse,
        fields: Mapping[str, Any],
    ) -> None:
        self._session = session
        self._socket = socket
        self._fields = fields
        self._previous: str | None = None
        self._running: str | None = None
        self._cancelled = False
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read(), name="reader")
        self.speculate = True

    def reset(self) -> None:
        """Forget the conversation so far."""
        self._previous = None

    async def ask(self, text: str, write: Callable[[str], None]) -> dict[str, Any]:
        """One turn; `write` gets the answer as it comes. Returns the whole response.

        Raises `RequestError` when the gateway refuses, `UserError` when it has gone.
        """
        request: dict[str, Any] = {
            "type": "response.create",
            "input": text,
            "previous_response_id": self._previous,
            **self._fields,
        }
        if not self.speculate:
            request["speculation"] = {"off": True}
        self._cancelled = False
        await self._send(request)
        try:
            return await self._answer(write)
        finally:
            self._running = None

    async def cancel(self) -> None:
        """End the running answer; `ask` then returns what there is of it."""
        self._cancelled = True
        if self._running is not None:
            await self._send({"type": "response.cancel", "response_id": self._running})
            self._running = None

    async def close(self) -> None:
        await self._socket.close()
        self._reader.cancel()
        await self._session.close()

    async def _answer(self, write: Callable[[str], None]) -> dict[str, Any]:
        while True:
            event = await self._events.get()
            if event is None:
                raise UserError("the gateway closed the connection.", code="gateway_gone")
            kind = event["type"]
            if kind == "response.created":
                self._running = event["response"]["id"]
                if self._cancelled:
                    await self.cancel()
            elif kind == "response.output_text.delta":
                write(event["delta"])
            elif kind == "error":
                self._refused(event["error"])
            elif kind in ENDINGS:
                return self._ended(event["response"])

    def _refused(self, error: dict[str, Any]) -> None:
        # A cancellation that came too late is no error of the turn.
        if error["code"] == "response_not_found":
            return
        if error["code"] == "previous_response_not_found":
            self.reset()
            raise RequestError("the gateway has forgotten this conversation; it begins anew.")
        raise RequestError(error["message"])

    def _ended(self, response: dict[str, Any]) -> dict[str, Any]:
        if response["status"] == "failed":
            raise RequestError(response["error"]["message"])
        # After a turn without any answer a model tends to give none again.
        if response["status"] != "cancelled" or _text(response):
            self._previous = response["id"]
        return response

    async def _send(self, event: dict[str, Any]) -> None:
        message = orjson.dumps(event)
        if len(message) >= TOO_LONG:
            raise RequestError(
                f"this is too long for one message: {len(message)} bytes of at most {TOO_LONG - 1}."
            )
        try:
            await self._socket.send_str(message.decode())
        except (ConnectionError, aiohttp.ClientError):
            raise UserError("the gateway closed the connection.", code="gateway_gone") from None

    async def _read(self) -> None:
        with suppress(aiohttp.ClientError, ConnectionError):
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._events.put_nowait(orjson.loads(message.data))
        self._events.put_nowait(None)


async def connect(
    url: str,
    *,
    api_key: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Chat:
    """`fields` are those of `response.create` that every turn has.

    Raises `UserError` that says why there is no connection.
    """
    if api_key and not api_key.isprintable():
        raise UserError("the API key has characters that no key has.", code="invalid_api_key")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    session = aiohttp.ClientSession(headers=headers)
    try:
        socket = await session.ws_connect(_socket_url(url), heartbeat=30, compress=0)
    except BaseException as error:
        await session.close()
        # UnicodeError: a name that cannot be a host's.
        if isinstance(error, (aiohttp.ClientError, OSError, TimeoutError, UnicodeError)):
            raise no_connection(url, error) from None
        raise
    return Chat(session, socket, fields or {})


def _text(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def _socket_url(url: str) -> str:
    base = url if "://" in url else f"http://{url}"
    base = base.rstrip("/").removesuffix("/v1")
    return base if base.endswith("/responses") else f"{base}/v1/responses"


def no_connection(url: str, error: Exception) -> UserError:
    """What to tell of an `error` of aiohttp."""
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError)):
        return UserError(
            f"{url!r} is not a URL like http://127.0.0.1:8765.", code="invalid_url", param="url"
        )
    if isinstance(error, aiohttp.ClientResponseError):
        reasons = {
            401: "asks for a valid API key: set OUTPACE_API_KEY, or pass --api-key-file.",
            403: "does not allow connections by this name; use the address it printed.",
            404: "is no Outpace gateway, or another version of it.",
            503: "is still loading, or shutting down; try again shortly.",
        }
        reason = reasons.get(error.status, f"answered with status {error.status}.")
        return UserError(f"the server at {url} {reason}", code="gateway_refused", param="url")
    return UserError(
        f"no gateway answers at {url} ({_reason(error)}). Start one with: outpace serve",
        code="gateway_unreachable",
        param="url",
    )


def _reason(error: Exception) -> str:
    """aiohttp's text for a refused connection speaks of SSL and repeats the address."""
    if not isinstance(error, aiohttp.ClientConnectorError) or not error.os_error.errno:
        return str(error) or type(error).__name__
    if isinstance(error.os_error, gaierror):
        return "the name is not known"
    return os.strerror(error.os_error.errno).lower()
