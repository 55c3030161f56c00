"""What a running gateway reads again on SIGHUP: keys and whose may administer, certificates, and
limits."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.http.gateway import Gateway
from gateway.http.keys import KeyRing, key_source
from gateway.service_manager.manager import ServiceManager
from gateway.settings import Settings, written
from gateway.tls import Tls
from models.errors import UserError

log = logging.getLogger(__name__)

LIVE = frozenset(
    {
        "admins",
        "api_keys",
        "limits_connections",
        "limits_nesting",
        "limits_schema_bytes",
        "limits_schema_nesting",
        "limits_output_tokens",
        "limits_requests",
        "limits_requests_per_minute",
        "limits_tokens_per_minute",
    }
)
"""Settings that take effect without a restart."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reloader:
    """`settings` reads them again from where they came from."""

    gateway: Gateway
    keys: KeyRing
    tls: Tls | None
    manager: ServiceManager
    settings: Callable[[], Settings]

    def reload(self) -> None:
        """What cannot be read or used changes nothing, and the log says why."""
        with self.manager.reloading():
            self._reread()
            if self.tls is not None:
                self.tls.reload()

    def _reread(self) -> None:
        try:
            found = self.settings()
        except UserError as error:
            log.error("settings were not reloaded, those in use stay: %s", error.message)
            self.keys.reload()
            return
        old = self.gateway.settings
        self.keys.reload(key_source(found, os.environ))
        live = {name: getattr(found, name) for name in LIVE}
        self.gateway.use_settings(dataclasses.replace(old, **live))
        changed, waiting = _changes(old, found)
        if changed:
            log.info("in use from now on: %s", ", ".join(changed))
        if waiting:
            log.warning("changed, but only a restart puts it in use: %s", ", ".join(waiting))


@contextmanager
def on_hangup(reloader: Reloader) -> Iterator[None]:
    """Within the block SIGHUP has read again what can be."""
    if sys.stdin.isatty() and not reloader.keys.from_files and reloader.tls is None:
        # A terminal that hangs up ends what runs in it, and few watch one to reload it.
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reloader.reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _changes(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """Names of the settings that changed: those in use now, and those that wait. No values: some
    are secret."""
    names = [item.name for item in dataclasses.fields(Settings)]
    changed = [name for name in names if getattr(old, name) != getattr(new, name)]
    live = [written(name) for name in changed if name in LIVE]
    return live, [written(name) for name in changed if name not in LIVE]
