"""The address that serve listens on: bound, or said why it cannot be had."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
from dataclasses import dataclass

from gateway.settings import Settings
from models.errors import UserError

ANSWER_SECONDS = 2.0
"""How long is waited for whoever listens there to say who it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """`running`: a gateway answers at the address, most likely the one that is asked about.
    `problem`: serve could not listen there, for the reason that is `told`."""

    told: str
    running: bool = False
    problem: bool = False


def look_at(settings: Settings) -> Place:
    """What is to be said of the settings' address before a gateway is started there."""
    where = f"{settings.host}:{settings.port}"
    if _gateway_answers(settings):
        return Place(f"a gateway listens on {where} already", running=True)
    try:
        bind(settings).close()
    except UserError as error:
        return Place(error.message, problem=True)
    return Place(f"{where} is free")


def bind(settings: Settings) -> socket.socket:
    """A bound socket. Raises `UserError` that says why there is none: `invalid_setting` where there
    never will be, `cannot_listen` where another time may do."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            # Two listeners may share a bound address until one of them listens.
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except UnicodeError:
        problem = f"cannot listen on {settings.host}:{settings.port}: this is no host name."
        raise UserError(problem, code="invalid_setting", param="host") from None
    except OSError as error:
        raise _cannot_listen(settings, error) from None
    return listener


def address(listener: socket.socket, *, secure: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}/v1" if ":" in host else f"{scheme}://{host}:{port}/v1"


def _cannot_listen(settings: Settings, error: OSError) -> UserError:
    where, code = f"{settings.host}:{settings.port}", "cannot_listen"
    if error.errno == errno.EADDRINUSE:
        problem = f"port {settings.port} is in use: {where}. Choose another with --port"
    elif error.errno == errno.EACCES:
        problem = f"not allowed to listen on {where}; ports below 1024 need privileges"
        code = "invalid_setting"
    else:
        problem = f"cannot listen on {where}: {error.strerror or error}"
    return UserError(problem + ".", code=code, param="port")


def _gateway_answers(settings: Settings) -> bool:
    if settings.port == 0:
        return False
    host = settings.host if settings.host not in ("0.0.0.0", "::") else "localhost"
    connection: http.client.HTTPConnection
    if settings.tls_certificate is None:
        connection = http.client.HTTPConnection(host, settings.port, timeout=ANSWER_SECONDS)
    else:
        # Asked only who it is: the certificate may be for any name.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            host, settings.port, timeout=ANSWER_SECONDS, context=context
        )
    try:
        connection.request("GET", "/health")
        return connection.getresponse().headers["Server"] == "outpace"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
