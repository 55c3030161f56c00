"""`/v1/responses` over its two transports: the WebSocket upgrade, and POST."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import orjson
from aiohttp import WSCloseCode, web

from gateway.http.access import BODY_DEADLINE, TRACE, read_body
from gateway.http.errors import wire_error
from gateway.http.fields import decode_object
from gateway.http.gateway import Gateway
from gateway.http.guard import (
    API_KEY,
    KEY_PROTOCOLS,
    error_response,
    json_response,
    offered_protocols,
    owner_of,
)
from gateway.http.outbox import ClientGoneError, Outbox
from gateway.http.responses.answer import Answer
from gateway.http.responses.journal import Entry
from gateway.http.responses.schema import parse_create
from gateway.http.responses.sockets import make_socket
from gateway.http.responses.store import Conversations
from gateway.http.responses.websocket import Connection
from gateway.http.sse import EventStream, Streaming
from models.errors import UserError

PROTOCOL = "realtime"


class ResponsesRoutes:
    """Owns the open connections."""

    def __init__(self, gateway: Gateway, streaming: Streaming) -> None:
        self._gateway = gateway
        self._streaming = streaming
        self.connections: set[Connection] = set()

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/responses", self.connect)
        router.add_post("/v1/responses", self.create)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        socket = make_socket(_protocols(request), self._gateway.limits.message_bytes)
        if not socket.can_prepare(request):
            raise UserError(
                "GET /v1/responses is for WebSocket upgrades; use POST otherwise.",
                code="method_not_allowed",
            )
        self._gateway.require_open()
        await socket.prepare(request)
        outbox = Outbox(socket, request.transport, self._streaming.send_deadline)
        if self._gateway.draining:
            await outbox.close(WSCloseCode.GOING_AWAY, b"shutting down")
            return socket
        if len(self.connections) >= self._gateway.limits.connections:
            await self._turn_away(request, outbox)
            return socket
        connection = Connection(self._gateway, socket, outbox, request.get(API_KEY))
        self.connections.add(connection)
        self._gateway.connections += 1
        try:
            await connection.serve()
        finally:
            self.connections.discard(connection)
            self._gateway.connections -= 1
            outbox.leave()
        return socket

    async def create(self, request: web.Request) -> web.StreamResponse:
        """One response: a JSON body, or with `stream` the same events as a WebSocket sends."""
        body = await read_body(request, BODY_DEADLINE)
        document = decode_object(body, self._gateway.limits.nesting)
        owner = owner_of(request)
        wanted = parse_create(document, self._gateway.settings, owner)
        conversations = Conversations(self._gateway.turns, lanes=0, owner=owner)
        answer = await self._gateway.answer(wanted, conversations)
        if wanted.stream:
            return await self._stream(request, answer)
        if wanted.background:
            return json_response(self._gateway.in_background(answer).response)
        return await self._whole(answer)

    async def _whole(self, answer: Answer) -> web.Response:
        """A failure has a status here: nothing of the answer is out that would speak of it."""
        async with self._gateway.streaming(answer) as entries:
            async for _ in entries:
                pass
        if answer.failure is not None:
            return error_response(answer.failure)
        return json_response(answer.snapshot())

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        stream = self._streaming.to(request)
        async with self._gateway.streaming(answer) as entries:
            await send_entries(stream, entries)
        return stream.response

    async def _turn_away(self, request: web.Request, outbox: Outbox) -> None:
        error = wire_error(
            UserError(
                f"{len(self.connections)} connections are open already.",
                code="websocket_connection_limit_reached",
            )
        )
        self._gateway.note_error(error)
        try:
            await outbox.send(error.event(request_id=request[TRACE].id))
        except ClientGoneError:
            return
        await outbox.close(WSCloseCode.TRY_AGAIN_LATER, b"too many connections")


async def send_entries(stream: EventStream, entries: AsyncIterator[Entry]) -> None:
    """Until the last, or until the client has gone."""
    try:
        await stream.open()
        async with stream.kept_alive():
            async for entry in entries:
                await stream.send(entry.body, entry.type)
    except ClientGoneError:
        return
    except UserError as error:
        # Of a reader that fell behind what is kept; answers tell of their own failures.
        with suppress(ClientGoneError):
            await stream.send(orjson.dumps(wire_error(error).event()), "error")


def _protocols(request: web.Request) -> tuple[str, ...]:
    """Browsers insist on one of what they offered: ours, or else the one that carries the key."""
    keys = [name for name in offered_protocols(request) if name.startswith(KEY_PROTOCOLS)]
    return (PROTOCOL, *keys)
