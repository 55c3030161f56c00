"""Who may ask: Host and Origin checks, API keys; and every refusal as the error envelope."""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterable
from urllib.parse import urlsplit

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gateway.http.errors import RETRY_AFTER, WireError, wire_error
from gateway.settings import Settings
from models.errors import UserError

log = logging.getLogger(__name__)

API_KEY = web.RequestKey("api_key", str)
"""The key that a request was let in by; absent where none is asked for."""

KEY_PROTOCOL = "openai-insecure-api-key."
LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})


def json_response(document: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")


def error_response(error: WireError) -> web.Response:
    error = error.over_http()
    response = json_response({"error": error.envelope()}, error.status)
    if error.code in RETRY_AFTER:
        response.headers[hdrs.RETRY_AFTER] = str(RETRY_AFTER[error.code])
    if error.status == 401:
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    return response


@web.middleware
async def error_envelope(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Everything that goes wrong before a body is out, as `{"error": {...}}`."""
    try:
        return await handler(request)
    except UserError as error:
        return error_response(wire_error(error))
    except web.HTTPException as refused:
        return _from_aiohttp(request, refused)
    except web.RequestPayloadError:
        unreadable = "The body does not follow its Content-Encoding or Transfer-Encoding."
        return error_response(WireError(400, "bad_request", unreadable))
    except ConnectionError:
        raise
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return error_response(wire_error(error))


def _from_aiohttp(request: web.Request, refused: web.HTTPException) -> web.Response:
    where = f"{request.method} {request.path[:200]}"
    if refused.status == 404:
        error = WireError(404, "not_found", f"There is no {where}.")
    elif isinstance(refused, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refused.allowed_methods))
        error = WireError(405, "method_not_allowed", f"No {where}; allowed: {allowed}.")
    elif refused.status == 413:
        error = WireError(413, "message_too_large", "The body is larger than 1 MiB.")
    else:
        error = WireError(refused.status, "bad_request", refused.text or refused.reason)
    return error_response(error)


def host_and_origin(settings: Settings) -> Middleware:
    """Refuse other names for this machine (DNS rebinding) and pages of other origins."""
    local_only = is_loopback(settings.host)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get(hdrs.HOST)
        if local_only and host is not None and not _is_known(host, settings):
            raise UserError(
                f"Host {host[:100]!r} is not a name of this machine's loopback.",
                code="forbidden_host",
            )
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and not _same_origin(origin, host, settings.allowed_origins):
            raise UserError(
                f"Origin {origin[:100]!r} is not allowed; add it to allowed_origins.",
                code="forbidden_origin",
            )
        return await handler(request)

    return check


def api_keys(settings: Settings) -> Middleware:
    """Ask for a key under /v1, as a bearer token or, for browsers, as a subprotocol."""
    known = tuple(key.encode() for key in settings.api_keys)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if known and request.path.startswith("/v1/"):
            matched = _matching(_keys(request), known)
            if matched is None:
                raise UserError("A valid API key is needed.", code="invalid_api_key")
            request[API_KEY] = matched.decode()
        return await handler(request)

    return check


def is_loopback(host: str) -> bool:
    """Whether an address to bind is reachable from this machine only."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def offered_protocols(request: web.Request) -> list[str]:
    header = ",".join(request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ()))
    return [part.strip() for part in header.split(",") if part.strip()]


def _keys(request: web.Request) -> Iterable[bytes]:
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip().encode(errors="surrogateescape")
    for protocol in offered_protocols(request):
        if protocol.startswith(KEY_PROTOCOL):
            yield protocol.removeprefix(KEY_PROTOCOL).encode(errors="surrogateescape")


def _matching(offered: Iterable[bytes], known: tuple[bytes, ...]) -> bytes | None:
    # Every pair is compared, so that the time says nothing about which key is nearly right.
    matches = [mine for key in offered for mine in known if hmac.compare_digest(key, mine)]
    return matches[0] if matches else None


def _is_known(header: str, settings: Settings) -> bool:
    """A name of the loopback, or of an allowed origin (a proxy on this machine passes it on)."""
    try:
        name = urlsplit(f"//{header}").hostname or ""
        allowed = {urlsplit(origin).hostname for origin in settings.allowed_origins}
    except ValueError:
        return False
    return name == settings.host.lower() or name in allowed or is_loopback(name)


def _same_origin(origin: str, host: str | None, allowed: tuple[str, ...]) -> bool:
    if origin in allowed:
        return True
    try:
        return host is not None and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
