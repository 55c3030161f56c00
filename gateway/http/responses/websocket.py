"""`/v1/responses` as a WebSocket: one connection, its lanes, its kept responses."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from gateway.http.errors import WireError, wire_error
from gateway.http.fields import decode_object, optional, required
from gateway.http.gateway import Gateway
from gateway.http.keys import ApiKey
from gateway.http.outbox import ClientGoneError, Outbox
from gateway.http.responses.answer import Answer
from gateway.http.responses.journal import Entry, starting_after
from gateway.http.responses.schema import parse_create, parse_stream_id
from gateway.http.responses.sockets import next_message
from gateway.http.responses.store import Conversations
from gateway.trace import CURRENT, Trace, request_id
from models.errors import UserError

log = logging.getLogger(__name__)

MAX_LANES = 32
# What is answered lane by lane, in order.
LANED = ("response.create", "response.resume")
# Over all lanes of a connection.
MAX_PENDING = 32
MAX_PENDING_CHARACTERS = 2 << 20


@dataclass(slots=True)
class Lane:
    """Requests that are answered one after another; `stream_id` None is the unnamed lane.

    They wait as the text they came as: decoded a request may take twenty times as much.
    """

    stream_id: str | None
    pending: deque[str] = field(default_factory=deque)
    begun: bool = False
    answer: Answer | None = None

    @property
    def waiting(self) -> int:
        """Behind the one that is answered, or is about to be."""
        return len(self.pending) - (not self.begun)


class Connection:
    """One WebSocket. `serve` returns when the client has left or the socket was closed."""

    def __init__(
        self,
        gateway: Gateway,
        socket: web.WebSocketResponse,
        outbox: Outbox,
        api_key: ApiKey | None = None,
    ) -> None:
        self._gateway = gateway
        self._api_key = api_key
        self._owner = None if api_key is None else api_key.owner
        self._socket = socket
        self._outbox = outbox
        self._conversations = Conversations(gateway.turns, MAX_LANES, self._owner)
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
        await self._outbox.close(WSCloseCode.GOING_AWAY, b"shutting down")

    def abort(self) -> None:
        self._outbox.abort()

    async def _read(self) -> None:
        while (message := await next_message(self._socket, self._outbox)) is not None:
            await self._receive(message)

    async def _receive(self, message: WSMessage) -> None:
        stream_id = None
        try:
            if message.type is not WSMsgType.TEXT:
                raise UserError("Messages are JSON in text frames.", code="invalid_type")
            document = decode_object(message.data, self._gateway.limits.nesting)
            kind = required(document, "type", str)
            if kind == "response.steer":
                await self._outbox.send(_steer_failed(document))
                return
            stream_id = parse_stream_id(document)
            if kind in LANED:
                self._enqueue(message.data, stream_id)
            else:
                self._dispatch(kind, document)
        except UserError as error:
            await self._refuse(wire_error(error), stream_id)

    async def _refuse(self, error: WireError, stream_id: str | None) -> None:
        self._gateway.note_error(error)
        trace = CURRENT.get()
        await self._outbox.send(error.event(stream_id, None if trace is None else trace.id))

    def _dispatch(self, kind: str, document: dict[str, Any]) -> None:
        if kind == "response.cancel":
            self._cancel(required(document, "response_id", str))
        else:
            raise UserError(
                f"type {kind[:60]!r} is not known; known are response.create, response.resume and"
                " response.cancel.",
                code="unsupported_value",
                param="type",
            )

    def _enqueue(self, message: str, stream_id: str | None) -> None:
        lane = self._lanes.get(stream_id)
        if lane is not None:
            self._require_waiting_room(len(message))
            lane.pending.append(message)
            return
        if len(self._lanes) >= MAX_LANES:
            raise UserError(
                f"{MAX_LANES} lanes of this connection are already busy.",
                code="websocket_stream_limit_reached",
                param="stream_id",
            )
        lane = self._lanes[stream_id] = Lane(stream_id, deque([message]))
        self._idle.clear()
        self._workers.create_task(self._work(lane), name=f"lane {stream_id}")

    def _require_waiting_room(self, characters: int) -> None:
        lanes = self._lanes.values()
        waiting = sum(lane.waiting for lane in lanes)
        held = sum(len(message) for lane in lanes for message in lane.pending)
        if waiting >= MAX_PENDING or held + characters > MAX_PENDING_CHARACTERS:
            raise UserError(
                f"{waiting} requests of this connection already wait, of {held} characters;"
                f" there is room for {MAX_PENDING}, of {MAX_PENDING_CHARACTERS}.",
                code="queue_full",
            )

    def _cancel(self, response_id: str) -> None:
        for lane in self._lanes.values():
            if lane.answer is not None and lane.answer.id == response_id:
                lane.answer.cancel()
                return
        # One that another connection began, and that goes on without it.
        self._gateway.kept.find(response_id, self._owner).cancel()

    async def _work(self, lane: Lane) -> None:
        lane.begun = True
        while lane.pending:
            await self._respond(lane)
        del self._lanes[lane.stream_id]
        if not self._lanes:
            self._idle.set()

    async def _respond(self, lane: Lane) -> None:
        connection = CURRENT.get()
        trace = Trace(request_id(), "WS", "/v1/responses")
        if connection is not None:
            trace.key, trace.connection = connection.key, connection.id
        with self._gateway.traces.running(trace):
            try:
                async with await self._stream(lane) as entries:
                    async for entry in entries:
                        await self._outbox.send_json(entry.on_lane(lane.stream_id))
                trace.status = 200
            except ClientGoneError:
                raise
            except Exception as error:
                if not isinstance(error, UserError):
                    log.exception("a request could not be answered")
                refused = wire_error(error)
                trace.status = refused.status
                await self._refuse(refused, lane.stream_id)
            finally:
                lane.answer = None

    async def _stream(self, lane: Lane) -> AbstractAsyncContextManager[AsyncIterator[Entry]]:
        """What the lane's next message asks for. The message is not kept: the answer may take
        minutes."""
        document = decode_object(lane.pending.popleft(), self._gateway.limits.nesting)
        self._gateway.keys.require(self._api_key)
        if document["type"] == "response.resume":
            # Of a response that this client, or another of its key, began.
            kept = self._gateway.kept.find(required(document, "response_id", str), self._owner)
            return aclosing(kept.journal.read(starting_after(document.get("starting_after"))))
        lane.answer = await self._begin(lane, document)
        return self._gateway.streaming(lane.answer)

    async def _begin(self, lane: Lane, document: dict[str, Any]) -> Answer:
        try:
            request = parse_create(document, self._gateway.settings, self._owner)
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
