"""The application: routes, guards, and the order in which it shuts down."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from gateway.http.completions.routes import CompletionsRoutes
from gateway.http.gateway import Gateway
from gateway.http.guard import api_keys, error_envelope, host_and_origin
from gateway.http.info import InfoRoutes
from gateway.http.outbox import SEND_DEADLINE
from gateway.http.responses.routes import MAX_MESSAGE, ResponsesRoutes

log = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds that cut answers have to send their last event."""


def make_app(gateway: Gateway, send_deadline: float = SEND_DEADLINE) -> web.Application:
    settings = gateway.settings
    app = web.Application(
        middlewares=[error_envelope, host_and_origin(settings), api_keys(settings)],
        client_max_size=MAX_MESSAGE,
    )
    responses = ResponsesRoutes(gateway, send_deadline)
    InfoRoutes(gateway).add_to(app.router)
    responses.add_to(app.router)
    CompletionsRoutes(gateway, send_deadline).add_to(app.router)

    async def shut_down(app: web.Application) -> None:
        await drain(gateway, responses)

    app.on_shutdown.append(shut_down)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """Without `handler_cancellation` a client that leaves would cancel nothing."""
    return web.AppRunner(
        app,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=GRACE,
        access_log=None,
    )


async def drain(gateway: Gateway, responses: ResponsesRoutes) -> None:
    """Refuse what is new, let what runs end until the deadline, then cut it; close sockets."""
    gateway.draining = True
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
