"""Cross-origin answers for the pages of `allowed_origins`, and for no others."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gateway.http.access import ID_HEADER

METHODS = "GET, POST, DELETE"
HEADERS = "Authorization, Content-Type, X-Request-Id"
EXPOSED = f"{ID_HEADER}, {hdrs.RETRY_AFTER}"
MAX_AGE = "600"
PRIVATE_NETWORK = "Access-Control-Request-Private-Network"
# Clients in a browser add headers of their own; none of them means anything to this gateway.
ASKED = re.compile(r"[A-Za-z0-9-]{1,64}(\s*,\s*[A-Za-z0-9-]{1,64}){0,63}")

Signal = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


def preflight() -> Middleware:
    """Answer what a browser asks before it sends; whether the origin may ask was checked before."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_METHOD)
        if request.method != hdrs.METH_OPTIONS or asked is None:
            return await handler(request)
        named = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
        headers: dict[str, str] = {
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: named if ASKED.fullmatch(named) else HEADERS,
            hdrs.ACCESS_CONTROL_MAX_AGE: MAX_AGE,
        }
        if request.headers.get(PRIVATE_NETWORK) == "true":
            headers["Access-Control-Allow-Private-Network"] = "true"
        return web.Response(status=204, headers=headers)

    return answer


def allow(origins: tuple[str, ...]) -> Signal:
    """A signal of the application: what a page of these origins may see of every response."""

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        if not origins:
            return
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
        origin = request.headers.get(hdrs.ORIGIN)
        if origin in origins:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = EXPOSED

    return add_headers
