"""A client of the gateway's WebSocket, in the Responses mode, that looks at the clock."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
import orjson

from models.sampling.parameters import Sampling

_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")
_EVENT_SECONDS = 120.0


class GatewayError(Exception):
    """The gateway answered with an error, or not at all."""


class Arrival(NamedTuple):
    """A delta with tokens: the clock's reading in seconds, how many tokens, the number of their
    last round, and the draft tokens that were verified for them."""

    at: float
    tokens: int
    round: int
    verified: int


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """One answer as its client saw it.

    Clock readings in seconds: `sent` the request, `first` and `last` delta with tokens (None for
    an answer without any). `first_tokens` came with the first delta. `ids` is empty unless
    provenance was asked for. `arrivals` are the readings of all deltas with tokens.
    """

    id: str
    text: str
    ids: tuple[int, ...]
    usage: Mapping[str, Any]
    timings: Mapping[str, Any]
    sent: float
    first: float | None
    last: float | None
    first_tokens: int
    arrivals: tuple[float, ...] = ()

    @property
    def tokens(self) -> int:
        count: int = self.usage["output_tokens"]
        return count

    @property
    def prompt_tokens(self) -> int:
        count: int = self.usage["input_tokens"]
        return count

    @property
    def cached_tokens(self) -> int:
        count: int = self.usage["input_tokens_details"]["cached_tokens"]
        return count

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first is None else (self.first - self.sent) * 1e3

    @property
    def tpot_ms(self) -> float | None:
        """Milliseconds per token that came behind the first delta; None where none did."""
        behind = self.tokens - self.first_tokens
        if self.first is None or self.last is None or behind < 1:
            return None
        return (self.last - self.first) * 1e3 / behind


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """As a request has them: all of them, so that no setting of the gateway's has a say."""
    fields = dataclasses.asdict(sampling)
    fields["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return fields


class Client:
    """One connection. One answer at a time."""

    def __init__(self, session: aiohttp.ClientSession, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._session = session
        self._ws = ws

    async def ask(
        self,
        text: str,
        *,
        max_tokens: int,
        sampling: Sampling | None = None,
        speculation: Mapping[str, Any] | None = None,
        previous: str | None = None,
        provenance: bool = False,
        ignore_eos: bool = False,
        form: Mapping[str, Any] | None = None,
        prediction: str | None = None,
        seen: list[Arrival] | None = None,
    ) -> WireAnswer:
        """The whole answer, greedy without `sampling`. Its arrivals go into `seen` as they come,
        which needs provenance.

        Raises `GatewayError`.
        """
        request: dict[str, Any] = {"input": text, "max_output_tokens": max_tokens}
        request |= {"temperature": 0} if sampling is None else sampling_fields(sampling)
        if speculation is not None:
            request["speculation"] = dict(speculation)
        if previous is not None:
            request["previous_response_id"] = previous
        if provenance:
            request["include"] = ["speculation"]
        if ignore_eos:
            request["ignore_eos"] = True
        if form is not None:
            request["text"] = {"format": dict(form)}
        if prediction is not None:
            request["prediction"] = {"type": "content", "content": prediction}
        sent = time.perf_counter()
        await self.send(request)
        return await self._collect(sent, seen)

    async def send(self, request: Mapping[str, Any]) -> None:
        """Raises `GatewayError` where the socket was closed."""
        message = orjson.dumps({"type": "response.create", **request})
        try:
            await self._ws.send_str(message.decode())
        except (ConnectionError, aiohttp.ClientError) as error:
            raise GatewayError(f"the socket was closed ({error})") from None

    async def event(self) -> dict[str, Any]:
        """The next event. Raises `GatewayError` for an error, a closed socket and silence."""
        try:
            async with asyncio.timeout(_EVENT_SECONDS):
                message = await self._ws.receive()
        except TimeoutError:
            raise GatewayError(f"no event for {_EVENT_SECONDS:.0f} s") from None
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise GatewayError(f"the socket was closed ({message.type.name}, {message.data})")
        event: dict[str, Any] = orjson.loads(message.data)
        if event["type"] == "error":
            raise GatewayError(f"{event['error']['code']}: {event['error']['message']}")
        return event

    async def close(self) -> None:
        if not self._session.closed:
            await self._ws.close()
            await self._session.close()

    async def kill(self) -> None:
        """Vanish: the socket is reset without a word, as when a process dies."""
        transport: Any = self._ws.get_extra_info("socket")
        if transport is not None:
            transport.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self._session.close()

    async def _collect(self, sent: float, seen: list[Arrival] | None) -> WireAnswer:
        parts: list[str] = []
        ids: list[int] = []
        arrivals: list[float] = []
        first_tokens = 1
        while True:
            event = await self.event()
            now = time.perf_counter()
            if event["type"] == "response.output_text.delta":
                parts.append(event["delta"])
                told = event.get("speculation")
                if told is not None and not told["ids"]:
                    continue  # the rest of a text, no token
                if told is not None:
                    ids += told["ids"]
                    if seen is not None:
                        seen.append(_arrival(now, told))
                if not arrivals:
                    first_tokens = len(told["ids"]) if told is not None else 1
                arrivals.append(now)
            elif event["type"] in _LAST_EVENTS:
                break
        response = event["response"]
        if response["status"] == "failed":
            raise GatewayError(f"{response['error']['code']}: {response['error']['message']}")
        return WireAnswer(
            id=response["id"],
            text="".join(parts),
            ids=tuple(ids),
            usage=response["usage"],
            timings=response["timings"],
            sent=sent,
            first=arrivals[0] if arrivals else None,
            last=arrivals[-1] if arrivals else None,
            first_tokens=first_tokens,
            arrivals=tuple(arrivals),
        )


def _arrival(at: float, told: Mapping[str, Any]) -> Arrival:
    return Arrival(at, len(told["ids"]), told["round"], told["verified"])


async def connect(url: str) -> Client:
    """A client of the gateway at `url`. The caller closes or kills it."""
    session = aiohttp.ClientSession()
    try:
        ws = await session.ws_connect(f"{url}/v1/responses", compress=0, max_msg_size=1 << 24)
    except BaseException as error:
        await session.close()
        if isinstance(error, aiohttp.ClientError):
            raise GatewayError(f"cannot connect: {error}") from None
        raise
    return Client(session, ws)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = await connect(url)
    try:
        yield client
    finally:
        await client.close()
