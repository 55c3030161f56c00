"""Who may ask: Host and Origin checks, API keys; and every refusal as the error envelope."""

from __future__ import annotations

import base64
import ipaddress
import logging
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gateway.http.access import TRACE
from gateway.http.errors import WireError, wire_error
from gateway.http.fields import invalid
from gateway.http.keys import ApiKey, KeyRing, invalid_key
from gateway.settings import Settings
from models.errors import UserError

log = logging.getLogger(__name__)

API_KEY = web.RequestKey("api_key", ApiKey)
"""The key that a request was let in by; absent where none is asked for."""

KEY_PROTOCOL = "openai-insecure-api-key."
ENCODED_KEY_PROTOCOL = "outpace-api-key-base64url."
"""The same for keys that hold what no subprotocol may: base64url of their UTF-8, unpadded."""

KEY_PROTOCOLS = (KEY_PROTOCOL, ENCODED_KEY_PROTOCOL)
LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})
# Beside all of /v1: what it tells is what /v1/status tells.
KEYED = frozenset({"/metrics"})


def json_response(document: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")


def error_response(error: WireError) -> web.Response:
    error = error.over_http()
    response = json_response({"error": error.envelope()}, error.status)
    if error.retry_after is not None:
        response.headers[hdrs.RETRY_AFTER] = str(error.retry_after)
    if error.status == 401:
        response.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    return response


def error_envelope(note: Callable[[WireError], None], most_bytes: int) -> Middleware:
    """Everything that goes wrong before a body is out, as `{"error": {...}}`.

    `note` is told of each; `most_bytes` is how large a body may be.
    """

    @web.middleware
    async def envelope(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ConnectionError:
            raise
        except Exception as failure:
            error = _error_of(request, failure, most_bytes)
            note(error)
            response = error_response(error)
            if isinstance(failure, web.HTTPMethodNotAllowed):
                response.headers[hdrs.ALLOW] = ", ".join(sorted(failure.allowed_methods))
            return response

    return envelope


def _error_of(request: web.Request, failure: Exception, most_bytes: int) -> WireError:
    if isinstance(failure, web.HTTPException):
        return _from_aiohttp(request, failure, most_bytes)
    if isinstance(failure, web.RequestPayloadError):
        unreadable = "The body does not follow its Content-Encoding or Transfer-Encoding."
        return WireError(400, "bad_request", unreadable)
    if not isinstance(failure, UserError):
        log.exception("%s %s failed", request.method, request.rel_url.raw_path[:200])
    return wire_error(failure)


def _from_aiohttp(request: web.Request, refused: web.HTTPException, most_bytes: int) -> WireError:
    where = f"{request.method} {request.path[:200]}"
    if refused.status == 404:
        return WireError(404, "not_found", f"There is no {where}.")
    if isinstance(refused, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refused.allowed_methods))
        return WireError(405, "method_not_allowed", f"No {where}; allowed: {allowed}.")
    if refused.status == 413:
        return WireError(413, "message_too_large", f"The body is larger than {most_bytes} bytes.")
    return WireError(refused.status, "bad_request", refused.text or refused.reason)


def host_and_origin(settings: Settings) -> Middleware:
    """Refuse other names for this machine (DNS rebinding) and pages of other origins."""
    checked = is_loopback(settings.host) or bool(settings.allowed_hosts)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get(hdrs.HOST)
        if checked and host is not None and not _is_known(host, settings):
            raise UserError(
                f"Host {host[:100]!r} is not a name of this gateway; add it to allowed_hosts.",
                code="forbidden_host",
            )
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and not is_allowed(origin, request, settings.allowed_origins):
            raise UserError(
                f"Origin {origin[:100]!r} is not allowed; add it to allowed_origins.",
                code="forbidden_origin",
            )
        return await handler(request)

    return check


def api_keys(keys: KeyRing) -> Middleware:
    """Ask for a key under /v1, as a bearer token or, for browsers, as a subprotocol."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if len(keys) and (request.path.startswith("/v1/") or request.path in KEYED):
            matched = keys.match(_offered(request))
            if matched is None:
                raise invalid_key()
            request[API_KEY] = matched
            request[TRACE].key = matched.label
        return await handler(request)

    return check


def owner_of(request: web.Request) -> str | None:
    """An opaque name of whose key let the request in."""
    key = request.get(API_KEY)
    return None if key is None else key.owner


def query_value(request: web.Request, name: str) -> str | None:
    """The value of `name` in the query, None where there is none. Raises `UserError` where it is
    given twice: one of the two would be ignored."""
    values = request.query.getall(name, [])
    if len(values) > 1:
        raise invalid(name, f"is in the query {len(values)} times; give it once")
    return values[0] if values else None


def is_loopback(host: str) -> bool:
    """Whether an address to bind is reachable from this machine only."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_allowed(origin: str, request: web.Request, allowed: tuple[str, ...]) -> bool:
    """Whether a page of `origin` may ask: one that this gateway could have served, or one of the
    `allowed`. Behind a proxy TLS may end there; where it ends here its pages have it too."""
    if origin in allowed:
        return True
    host = request.headers.get(hdrs.HOST)
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if request.secure and parts.scheme != "https":
        return False
    return host is not None and parts.netloc.lower() == host.lower()


def offered_protocols(request: web.Request) -> list[str]:
    header = ",".join(request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ()))
    return [part.strip() for part in header.split(",") if part.strip()]


def _offered(request: web.Request) -> Iterator[str]:
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    for protocol in offered_protocols(request):
        if protocol.startswith(KEY_PROTOCOL):
            yield protocol.removeprefix(KEY_PROTOCOL)
        elif protocol.startswith(ENCODED_KEY_PROTOCOL):
            yield from _decoded(protocol.removeprefix(ENCODED_KEY_PROTOCOL))


def _decoded(text: str) -> Iterator[str]:
    padded = text + "=" * (-len(text) % 4)
    try:
        yield base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError:
        return


def _is_known(header: str, settings: Settings) -> bool:
    """A name of the loopback, an allowed one, or that of an allowed origin (a proxy on this machine
    passes it on)."""
    try:
        name = urlsplit(f"//{header}").hostname or ""
        origins = {urlsplit(origin).hostname for origin in settings.allowed_origins}
    except ValueError:
        return False
    allowed = {host.strip("[]") for host in settings.allowed_hosts}
    return name == settings.host.lower() or name in allowed | origins or is_loopback(name)
