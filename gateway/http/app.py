"""The application: routes, guards, and the order in which it shuts down."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import hdrs, web

from gateway.http.access import ServerLog, name_request, traced
from gateway.http.admin import AdminRoutes
from gateway.http.completions.routes import CompletionsRoutes
from gateway.http.cors import allow, preflight
from gateway.http.gateway import Gateway
from gateway.http.guard import api_keys, error_envelope, host_and_origin
from gateway.http.info import InfoRoutes
from gateway.http.openapi.routes import OpenApiRoutes
from gateway.http.outbox import SEND_DEADLINE
from gateway.http.page import PageRoutes
from gateway.http.responses.compact import CompactRoutes
from gateway.http.responses.routes import ResponsesRoutes
from gateway.http.responses.stored import StoredRoutes
from gateway.http.sse import KEEP_ALIVE, Streaming
from gateway.limits import Limits

log = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds that cut answers have to send their last event."""

IDLE_SECONDS = 120.0
"""A connection on which no request, or only the beginning of one, came for so long is closed."""


def make_app(
    gateway: Gateway, send_deadline: float = SEND_DEADLINE, keep_alive: float = KEEP_ALIVE
) -> web.Application:
    settings, limits = gateway.settings, gateway.limits
    app = web.Application(
        middlewares=[
            traced(gateway.traces, send_deadline),
            error_envelope(gateway.note_error, limits.message_bytes),
            host_and_origin(settings),
            preflight(),
            api_keys(gateway.keys),
        ],
        client_max_size=limits.message_bytes,
    )
    streaming = Streaming(send_deadline, keep_alive)
    responses = ResponsesRoutes(gateway, streaming)
    PageRoutes().add_to(app.router)
    InfoRoutes(gateway).add_to(app.router)
    AdminRoutes(gateway).add_to(app.router)
    OpenApiRoutes().add_to(app.router)
    responses.add_to(app.router)
    CompactRoutes(gateway).add_to(app.router)
    StoredRoutes(gateway, streaming).add_to(app.router)
    CompletionsRoutes(gateway, streaming).add_to(app.router)
    app.on_response_prepare.append(name_request)
    app.on_response_prepare.append(allow(settings.allowed_origins))

    async def leave(request: web.Request, response: web.StreamResponse) -> None:
        """No client is to ask again on a connection that is about to be closed."""
        if gateway.draining and not isinstance(response, web.WebSocketResponse):
            response.force_close()
            response.headers[hdrs.CONNECTION] = "close"

    app.on_response_prepare.append(leave)

    async def shut_down(app: web.Application) -> None:
        await drain(gateway, responses)
        await gateway.background.close()

    app.on_shutdown.append(shut_down)
    return app


def make_runner(app: web.Application, limits: Limits | None = None) -> web.AppRunner:
    """Without `handler_cancellation` a client that leaves would cancel nothing."""
    limits = limits or Limits()
    return web.AppRunner(
        app,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=GRACE,
        access_log=None,
        logger=ServerLog(logging.getLogger("gateway.http.server"), {}),
        keepalive_timeout=IDLE_SECONDS,
        max_line_size=limits.header_bytes,
        max_field_size=limits.header_bytes,
        max_headers=limits.headers,
    )


async def drain(gateway: Gateway, responses: ResponsesRoutes) -> None:
    """Refuse what is new, let what runs end until the deadline, then cut it; close sockets."""
    gateway.draining = True
    gateway.fleet.drain()
    async with asyncio.TaskGroup() as group:
        for connection in list(responses.connections):
            group.create_task(connection.drain())
        if await _idle_within(gateway, gateway.settings.drain_seconds):
            return
        log.warning("cutting %d running answers", gateway.running)
        gateway.cancel_running()
        if not await _idle_within(gateway, GRACE):
            for connection in list(responses.connections):
                connection.abort()


async def _idle_within(gateway: Gateway, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await gateway.wait_idle()
    except TimeoutError:
        return False
    return True
