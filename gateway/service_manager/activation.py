"""Sockets that the service manager has opened (sd_listen_fds(3))."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass

from models.errors import UserError

FIRST = 3
"""The first descriptor that is passed."""

_NAMES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
_FAMILIES = frozenset({socket.AF_INET, socket.AF_INET6})


@dataclass(frozen=True, slots=True)
class Passed:
    """A listening socket and the name that its unit gives it."""

    socket: socket.socket
    name: str


def passed_sockets(
    environment: MutableMapping[str, str], pid: int | None = None, first: int = FIRST
) -> list[Passed]:
    """Those that were passed to this process; none where they are another's.

    The variables are taken out of `environment`: no child is to think that they are its own.
    Raises `UserError` (`invalid_activation`) for what cannot be listened on.
    """
    told = {name: environment.pop(name, None) for name in _NAMES}
    if told["LISTEN_PID"] is None or told["LISTEN_FDS"] is None:
        return []
    if _number(told["LISTEN_PID"], "LISTEN_PID") != (os.getpid() if pid is None else pid):
        return []
    count = _number(told["LISTEN_FDS"], "LISTEN_FDS")
    names = (told["LISTEN_FDNAMES"] or "").split(":") if told["LISTEN_FDNAMES"] else []
    names += ["unknown"] * (count - len(names))
    return [_opened(first + index, names[index]) for index in range(count)]


def _number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise _invalid(f"{name} is {text!r}, which is no number")
    return int(text)


def _opened(descriptor: int, name: str) -> Passed:
    where = f"descriptor {descriptor} ({name})"
    try:
        os.set_inheritable(descriptor, False)
        opened = socket.socket(fileno=descriptor)
    except OSError as error:
        raise _invalid(f"{where} is no socket: {error.strerror}") from None
    if opened.family not in _FAMILIES or opened.type != socket.SOCK_STREAM:
        raise _invalid(f"{where} is no TCP socket; give ListenStream= an address and a port")
    if not opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise _invalid(f"{where} does not listen; the socket unit needs Accept=no")
    opened.setblocking(False)
    return Passed(opened, name)


def _invalid(problem: str) -> UserError:
    return UserError(f"socket activation: {problem}.", code="invalid_activation")
