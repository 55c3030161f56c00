"""`/v1/responses` as a WebSocket: one connection, its lanes, its kept responses."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from gateway.http.errors import wire_error
from gateway.http.fields import decode_object, optional, required
from gateway.http.gateway import Gateway
from gateway.http.outbox import ClientGoneError, Outbox
from gateway.http.responses.answer import Answer
from gateway.http.responses.schema import parse_create, parse_stream_id
from gateway.http.responses.store import Conversations
from models.errors import UserError

log = logging.getLogger(__name__)

MAX_LANES = 32
# Over all lanes of a connection: each may hold a message of the largest size.
MAX_PENDING = 32


@dataclass(slots=True)
class Lane:
    """Requests that are answered one after another; `stream_id` None is the unnamed lane."""

    stream_id: str | None
    pending: deque[dict[str, Any]] = field(default_factory=deque)
    answer: Answer | None = None


class Connection:
    """One WebSocket. `serve` returns when the client has left or the socket was closed."""

    def __init__(
        self,
        gateway: Gateway,
        socket: web.WebSocketResponse,
        outbox: Outbox,
        api_key: str | None = None,
    ) -> None:
        self._gateway = gateway
        self._api_key = api_key
        self._socket = socket
        self._outbox = outbox
        self._conversations = Conversations(gateway.turns, MAX_LANES)
        self._lanes: dict[str | None, Lane] = {}
        self._workers = asyncio.TaskGroup()
        self._idle = asyncio.Event()
        self._idle.set()

    async def serve(self) -> None:
        try:
            async with self._workers:
                await self._read()
                # Raised inside the group, it cancels every lane: their generations end at once.
                raise ClientGoneError("closed by the client")
        except* ClientGoneError as gone:
            log.debug("connection ended: %s", gone.exceptions[0])
        finally:
            # Lanes were cancelled, not worked off: whoever drains must not wait for them.
            self._lanes.clear()
            self._idle.set()

    async def drain(self) -> None:
        """Let what runs end, then say that the server goes away: clients reconnect on 1001."""
        await self._idle.wait()
        await self._socket.close(code=WSCloseCode.GOING_AWAY, message=b"shutting down")

    def abort(self) -> None:
        self._outbox.abort()

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is WSMsgType.ERROR:
                return
            await self._receive(message)

    async def _receive(self, message: WSMessage) -> None:
        stream_id = None
        try:
            if message.type is not WSMsgType.TEXT:
                raise UserError("Messages are JSON in text frames.", code="invalid_type")
            document = decode_object(message.data)
            kind = required(document, "type", str)
            if kind == "response.steer":
                await self._outbox.send(_steer_failed(document))
                return
            stream_id = parse_stream_id(document)
            self._dispatch(kind, document, stream_id)
        except UserError as error:
            await self._outbox.send(wire_error(error).event(stream_id))

    def _dispatch(self, kind: str, document: dict[str, Any], stream_id: str | None) -> None:
        if kind == "response.create":
            self._enqueue(document, stream_id)
        elif kind == "response.cancel":
            self._cancel(required(document, "response_id", str))
        else:
            raise UserError(
                f"type {kind[:60]!r} is not known; known are response.create and response.cancel.",
                code="unsupported_value",
                param="type",
            )

    def _enqueue(self, document: dict[str, Any], stream_id: str | None) -> None:
        lane = self._lanes.get(stream_id)
        if lane is not None:
            self._require_waiting_room()
            lane.pending.append(document)
            return
        if len(self._lanes) >= MAX_LANES:
            raise UserError(
                f"{MAX_LANES} lanes of this connection are already busy.",
                code="websocket_stream_limit_reached",
                param="stream_id",
            )
        lane = self._lanes[stream_id] = Lane(stream_id)
        self._idle.clear()
        self._workers.create_task(self._work(lane, document), name=f"lane {stream_id}")

    def _require_waiting_room(self) -> None:
        if sum(len(lane.pending) for lane in self._lanes.values()) >= MAX_PENDING:
            raise UserError(
                f"{MAX_PENDING} requests of this connection already wait.", code="queue_full"
            )

    def _cancel(self, response_id: str) -> None:
        for lane in self._lanes.values():
            if lane.answer is not None and lane.answer.id == response_id:
                lane.answer.cancel()
                return
        raise UserError(
            f"No response {response_id[:80]!r} is running on this connection.",
            code="response_not_found",
            param="response_id",
        )

    async def _work(self, lane: Lane, first: dict[str, Any]) -> None:
        await self._respond(lane, first)
        while lane.pending:
            await self._respond(lane, lane.pending.popleft())
        del self._lanes[lane.stream_id]
        if not self._lanes:
            self._idle.set()

    async def _respond(self, lane: Lane, document: dict[str, Any]) -> None:
        try:
            answer = await self._begin(lane, document)
        except UserError as error:
            await self._outbox.send(wire_error(error).event(lane.stream_id))
            return
        except Exception as error:
            log.exception("a request could not begin")
            await self._outbox.send(wire_error(error).event(lane.stream_id))
            return
        lane.answer = answer
        async with self._gateway.streaming(answer) as events:
            async for event in events:
                await self._outbox.send(event.document(lane.stream_id))
        lane.answer = None

    async def _begin(self, lane: Lane, document: dict[str, Any]) -> Answer:
        try:
            request = parse_create(document, self._gateway.settings, self._api_key)
        except UserError:
            previous = document.get("previous_response_id")
            if isinstance(previous, str):
                self._conversations.evict(previous)
            raise
        return await self._gateway.answer(request, self._conversations, lane.stream_id)


def _steer_failed(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "response.steer.failed",
        "sequence_number": 0,
        "error": {
            "type": "invalid_request_error",
            "code": "steering_not_supported",
            "message": "A running response cannot be steered here.",
        },
        "steer": {
            "input": document.get("input", ""),
            "previous_response_id": optional(document, "previous_response_id", str) or "",
        },
    }
