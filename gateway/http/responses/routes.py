"""`/v1/responses` over its two transports: the WebSocket upgrade, and POST."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import WSCloseCode, web

from gateway.http.errors import wire_error
from gateway.http.fields import decode_object
from gateway.http.gateway import Gateway
from gateway.http.guard import API_KEY, KEY_PROTOCOL, json_response, offered_protocols
from gateway.http.outbox import SEND_DEADLINE, ClientGoneError, Outbox
from gateway.http.responses.answer import Answer
from gateway.http.responses.schema import parse_create
from gateway.http.responses.store import Conversations
from gateway.http.responses.websocket import Connection
from gateway.http.sse import EventStream
from models.errors import UserError

MAX_MESSAGE = 1 << 20
MAX_CONNECTIONS = 128
HEARTBEAT = 20.0
WRITER_LIMIT = 16 << 10
PROTOCOL = "realtime"


class ResponsesRoutes:
    """Owns the open connections. `send_deadline` drops a client that does not read for so long."""

    def __init__(self, gateway: Gateway, send_deadline: float = SEND_DEADLINE) -> None:
        self._gateway = gateway
        self._send_deadline = send_deadline
        self.connections: set[Connection] = set()

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/responses", self.connect)
        router.add_post("/v1/responses", self.create)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            timeout=5.0,
            compress=False,
            max_msg_size=MAX_MESSAGE,
            heartbeat=HEARTBEAT,
            writer_limit=WRITER_LIMIT,
            protocols=_protocols(request),
        )
        if not socket.can_prepare(request):
            raise UserError(
                "GET /v1/responses is for WebSocket upgrades; use POST otherwise.",
                code="method_not_allowed",
            )
        self._gateway.accepting()
        await socket.prepare(request)
        if self._gateway.draining:
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"shutting down")
            return socket
        outbox = Outbox(socket, request.transport, self._send_deadline)
        if len(self.connections) >= MAX_CONNECTIONS:
            await self._turn_away(socket, outbox)
            return socket
        connection = Connection(self._gateway, socket, outbox, request.get(API_KEY))
        self.connections.add(connection)
        try:
            await connection.serve()
        finally:
            self.connections.discard(connection)
        return socket

    async def create(self, request: web.Request) -> web.StreamResponse:
        """One response: a JSON body, or with `stream` the same events as a WebSocket sends."""
        document = decode_object(await request.read())
        wanted = parse_create(document, self._gateway.settings, request.get(API_KEY))
        conversations = Conversations(self._gateway.turns, lanes=0)
        answer = await self._gateway.answer(wanted, conversations)
        if wanted.stream:
            return await self._stream(request, answer)
        return json_response(await self._whole(answer))

    async def _whole(self, answer: Answer) -> Any:
        async with self._gateway.streaming(answer) as events:
            async for event in events:
                last = event
        return last.fields["response"]

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        stream = EventStream(request, self._send_deadline)
        async with self._gateway.streaming(answer) as events:
            try:
                await stream.open()
                async for event in events:
                    await stream.send(orjson.dumps(event.document()), event.type)
            except ClientGoneError:
                return stream.response
        return stream.response

    async def _turn_away(self, socket: web.WebSocketResponse, outbox: Outbox) -> None:
        error = UserError(
            f"{MAX_CONNECTIONS} connections are open already.",
            code="websocket_connection_limit_reached",
        )
        try:
            await outbox.send(wire_error(error).event())
            await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=b"too many connections")
        except ClientGoneError:
            return


def _protocols(request: web.Request) -> tuple[str, ...]:
    """Browsers insist on one of what they offered: ours, or else the one that carries the key."""
    keys = [name for name in offered_protocols(request) if name.startswith(KEY_PROTOCOL)]
    return (PROTOCOL, *keys)
