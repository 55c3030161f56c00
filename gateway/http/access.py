"""Every request has an id and an access line, and its answer an end to how long it is sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from gateway.http.outbox import ClientGoneError, within_deadline
from gateway.trace import Trace, Traces, request_id
from models.errors import UserError

ID_HEADER = "X-Request-Id"
BODY_DEADLINE = 30.0
"""Seconds that a client has to send a body."""

MOST_PATH = 200
# What watches a gateway asks often: it has its lines where somebody looks for them.
PROBES = frozenset({"/health", "/ready", "/metrics"})
TRACE = web.RequestKey("trace", Trace)


def traced(traces: Traces, send_deadline: float) -> Middleware:
    """The outermost of the middlewares: what it logs is how the request ended."""

    @web.middleware
    async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        known = Trace(
            id=request_id(request.headers.get(ID_HEADER)),
            method=request.method,
            # As it was sent: decoded it could break a line.
            path=request.rel_url.raw_path[:MOST_PATH],
        )
        request[TRACE] = known
        level = logging.DEBUG if request.path in PROBES else logging.INFO
        with traces.running(known, level):
            response = await handler(request)
            known.status = response.status
            if not isinstance(response, web.WebSocketResponse):
                await _send(request, response, send_deadline)
            return response

    return trace


async def name_request(request: web.Request, response: web.StreamResponse) -> None:
    """A signal of the application: the head of every response names its request, and no version of
    what serves it."""
    response.headers[hdrs.SERVER] = "outpace"
    known = request.get(TRACE)
    if known is not None:
        response.headers[ID_HEADER] = known.id


async def _send(request: web.Request, response: web.StreamResponse, deadline: float) -> None:
    """aiohttp would wait for ever for a client that does not read the rest of a response."""

    async def whole() -> None:
        await response.prepare(request)
        await response.write_eof()

    try:
        await within_deadline(whole(), request.transport, deadline)
    except ClientGoneError:
        return


async def read_body(request: web.Request, deadline: float) -> bytes:
    """The body of a request. Raises `UserError` (`body_timeout`) where it does not come in time."""
    try:
        async with asyncio.timeout(deadline):
            return await request.read()
    except TimeoutError:
        raise UserError(
            f"The body did not arrive within {deadline:g} s.", code="body_timeout"
        ) from None


class ServerLog(logging.LoggerAdapter[logging.Logger]):
    """The log of aiohttp's server, without what clients sent instead of HTTP: it may be a key."""

    def exception(self, msg: object, *args: Any, exc_info: Any = True, **rest: Any) -> None:
        self._tell(super().exception, msg, *args, exc_info=exc_info, **rest)

    def debug(self, msg: object, *args: Any, exc_info: Any = None, **rest: Any) -> None:
        self._tell(super().debug, msg, *args, exc_info=exc_info, **rest)

    def _tell(
        self, tell: Callable[..., None], msg: object, *args: Any, exc_info: Any, **rest: Any
    ) -> None:
        if isinstance(exc_info, HttpProcessingError):
            self.logger.info("a connection sent no valid HTTP (%s)", type(exc_info).__name__)
        else:
            tell(msg, *args, exc_info=exc_info, **rest)
