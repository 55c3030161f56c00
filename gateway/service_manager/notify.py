"""The notification protocol of sd_notify(3): datagrams of `NAME=value` lines to a Unix socket."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

SOCKET = "NOTIFY_SOCKET"
MOST_STATUS = 200
"""Characters of a status line that are sent; what lists units shows no more."""


class Notifier:
    """Sends to the socket at `address`; None: nobody listens, and everything is a no-op.

    An address that begins with `@` is in the abstract namespace. A message that cannot be sent is
    logged, once, and costs nothing else: a gateway that serves must not end because nobody listens.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._socket: socket.socket | None = None
        self._failed = False
        if address is None:
            return
        if not address.startswith(("/", "@")):
            log.warning("%s is %r: only Unix sockets are known, nobody is told", SOCKET, address)
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Notifier:
        return cls(environment.get(SOCKET) or None)

    @property
    def heard(self) -> bool:
        """Whether there is somebody to tell."""
        return self._socket is not None

    def status(self, text: str, *, extend: float | None = None) -> None:
        """One line of what is being done. `extend`: seconds from now that it may take."""
        self._send([_status(text), *_extension(extend)])

    def ready(self, text: str) -> None:
        self._send(["READY=1", _status(text)])

    def reloading(self) -> None:
        """Settings are read again; `ready` says that this has ended."""
        since_boot = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(["RELOADING=1", f"MONOTONIC_USEC={since_boot}", _status("reloading")])

    def stopping(self, text: str, *, extend: float | None = None) -> None:
        self._send(["STOPPING=1", _status(text), *_extension(extend)])

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send(["WATCHDOG=1"])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, lines: Sequence[str]) -> None:
        if self._socket is None or self.address is None:
            return
        where = self.address
        if where.startswith("@"):
            where = "\0" + where[1:]
        try:
            self._socket.sendto("\n".join(lines).encode(errors="replace"), where)
        except OSError as error:
            if not self._failed:
                log.warning("the service manager cannot be told: %s", error.strerror or error)
            self._failed = True
        else:
            self._failed = False


def _status(text: str) -> str:
    # A line break would begin another assignment.
    return "STATUS=" + " ".join(text.split())[:MOST_STATUS]


def _extension(seconds: float | None) -> list[str]:
    return [] if seconds is None else [f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}"]
