"""Load a package and serve it until told to stop.

The socket is bound before the model loads: a port in use is known at once, and /ready can say
that the model is loading.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import uvloop
from aiohttp import web

from gateway.commands.listening import address, bind
from gateway.commands.options import add_setting_flags, settings_of
from gateway.commands.reloading import Reloader, on_hangup
from gateway.commands.statuses import STUCK, of_serve
from gateway.fleet.sources import read_sources
from gateway.fleet.starting import Starter
from gateway.fleet.watch import Watch
from gateway.http.app import make_app, make_runner
from gateway.http.gateway import Gateway
from gateway.http.guard import is_loopback
from gateway.http.keys import KeyRing, key_ring
from gateway.http.listening import Listeners, stop_listening
from gateway.logs import SAID, configure_logs
from gateway.service_manager.activation import passed_sockets
from gateway.service_manager.manager import ServiceManager
from gateway.service_manager.order import contradiction
from gateway.settings import Settings
from gateway.tls import Tls
from models.errors import UserError
from models.providers import load_onnxruntime

log = logging.getLogger(SAID)

SWITCH_SECONDS = 0.0005
"""After so long the event loop gets the interpreter from a thread that makes rounds, which lets go
of it in every run: only runs of microseconds take it back before the loop had it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_flags(parser)
    parser.set_defaults(failed=of_serve)


def run(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    configure_logs(settings.log_level, settings.log_format)
    with ExitStack() as stack:
        passed = [stack.enter_context(each.socket) for each in passed_sockets(os.environ)]

        def current() -> Settings:
            """As they are written now; sockets that were passed stay where they are."""
            return at_sockets(settings_of(parsed), passed)

        settings = at_sockets(settings, passed)
        keys = key_ring(settings, os.environ)
        require_safe_address(settings, len(keys))
        tls = make_tls(settings)
        load_onnxruntime()
        own = [] if passed else [stack.enter_context(bind(settings))]
        manager = ServiceManager.of(os.environ)
        if (problem := contradiction(manager.watchdog, settings.terms)) is not None:
            log.warning("%s", problem)
        sys.setswitchinterval(SWITCH_SECONDS)
        uvloop.run(serve(settings, passed, own, keys, tls, manager, current))
    return 0


def at_sockets(settings: Settings, passed: Sequence[socket.socket]) -> Settings:
    """With the address of the sockets that were passed: of several the one that most can reach."""
    if not passed:
        return settings
    addresses = [each.getsockname()[:2] for each in passed]
    host, port = min(addresses, key=lambda address: is_loopback(address[0]))
    return replace(settings, host=host, port=port)


async def serve(
    settings: Settings,
    passed: Sequence[socket.socket],
    own: Sequence[socket.socket],
    keys: KeyRing,
    tls: Tls | None,
    manager: ServiceManager,
    current: Callable[[], Settings],
) -> None:
    """On sockets that were `passed`, which others hold too, or on its `own`. Until SIGTERM or
    SIGINT; then running answers may end within `drain_seconds`. SIGHUP has keys, certificates and
    limits read again; `current` gives the settings then."""
    gateway = Gateway(settings, keys=keys)
    reloader = Reloader(gateway, keys, tls, manager, current)
    runner = make_runner(make_app(gateway), gateway.limits)
    await runner.setup()
    listeners, context = [*passed, *own], None if tls is None else tls.context
    loaded = closed = False
    async with manager.watching(gateway.fleet.running_for):
        with stop_signals() as stop, on_hangup(reloader):
            stopped = asyncio.create_task(stop.wait(), name="stop")
            watching = asyncio.create_task(Watch(gateway.fleet, _give_up).run(), name="watch")
            try:
                for listener in listeners:
                    await web.SockSite(runner, listener, ssl_context=context).start()
                loaded = await _load_unless(stopped, settings, gateway, manager)
                if not stop.is_set():
                    where = ", ".join(address(each, secure=tls is not None) for each in listeners)
                    _say(f"ready on {where}")
                    manager.ready(f"ready on {where}")
                await stopped
                manager.stopping(gateway.running, settings.drain_seconds)
                _say("stopping; once more stops at once")
            finally:
                stopped.cancel()
                watching.cancel()
                closed = await _close(gateway, runner, Listeners(own, context))
    if not (loaded and closed):
        _leave()


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Set by the first SIGTERM or SIGINT; the next one acts as if nobody handled it."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def release() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    def on_signal() -> None:
        stop.set()
        release()

    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        release()


async def _load_unless(
    stopped: asyncio.Task[bool], settings: Settings, gateway: Gateway, manager: ServiceManager
) -> bool:
    """Whether loading ended before it was told to stop."""
    loading = asyncio.create_task(_load(settings, gateway, manager), name="load")
    await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
    if loading.done():
        await loading
        return True
    loading.cancel()
    return False


def _leave(status: int = 0) -> NoReturn:
    """End the process without waiting for the thread that loads, or runs: nothing can interrupt it,
    and whoever joins it at exit would wait to the end of what nobody wants."""
    with suppress(OSError):
        sys.stdout.flush()
    os._exit(status)


def _give_up(reason: str) -> NoReturn:
    """The device does not come back: only another process may reach it again."""
    log.error("%s; ending", reason)
    _leave(STUCK)


async def _load(settings: Settings, gateway: Gateway, manager: ServiceManager) -> None:
    """The default package; the others are loaded when somebody wants them."""
    options, fleet = settings.engine_options, gateway.fleet

    def report(line: str) -> None:
        _say(line)
        if fleet.starting:  # later ones are loaded beside what is served
            manager.loading(line)

    sources = await asyncio.to_thread(read_sources, settings.package, settings.packages, options)
    start = Starter(options, sources[0].name, fleet.turns, gateway.metrics.of, report)
    for source in sources:
        fleet.add(source, start, start.forget)
    if len(sources) > 1:
        _say(f"packages: {', '.join(fleet.names)}; the first is the default")
    await fleet.start()


async def _close(gateway: Gateway, runner: web.AppRunner, own: Listeners) -> bool:
    """Whether everything ended that was loaded."""
    # First drained, then closed: while answers end, who asks is told 503 and when to come again.
    await runner.shutdown()
    await stop_listening(runner, own)
    await runner.cleanup()
    return await gateway.fleet.close()


def make_tls(settings: Settings) -> Tls | None:
    """From the files of the settings, or from the credentials `tls_certificate` and `tls_key` of
    the service. Raises `UserError` where the certificate cannot be used."""
    certificate, key = settings.tls_certificate, settings.tls_key
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    if certificate is None and directory:
        certificate, key = _credential(directory, "certificate"), _credential(directory, "key")
    return None if certificate is None else Tls(certificate, key)


def _credential(directory: str, kind: str) -> Path | None:
    path = Path(directory) / f"tls_{kind}"
    return path if path.exists() else None


def require_safe_address(settings: Settings, keys: int) -> None:
    """`keys` is how many there are."""
    if not (is_loopback(settings.host) or keys or settings.insecure):
        raise UserError(
            f"{settings.host} can be reached from other machines and no API keys are set. Set"
            " OUTPACE_API_KEYS, api_keys in the configuration file or --api-keys-file, or pass"
            " --insecure.",
            code="insecure_address",
            param="host",
        )


def _say(line: str) -> None:
    log.info("%s", line)
