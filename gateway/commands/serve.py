"""Load a package and serve it until told to stop.

The socket is bound before the model loads: a port in use is known at once, and /ready can say
that the model is loading.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import uvloop
from aiohttp import web

from gateway.commands.options import add_setting_flags, settings_of
from gateway.engine.engine import Engine
from gateway.http.app import make_app, make_runner
from gateway.http.gateway import Gateway
from gateway.http.guard import is_loopback
from gateway.http.keys import KeyRing, key_ring
from gateway.logs import SAID, configure_logs
from gateway.settings import Settings
from gateway.tls import Tls
from models.errors import UserError
from models.package import Package, load_package
from models.providers import load_onnxruntime

log = logging.getLogger(SAID)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_flags(parser)


def run(parsed: argparse.Namespace) -> int:
    settings = settings_of(parsed)
    keys = key_ring(settings, os.environ)
    require_safe_address(settings, len(keys))
    tls = make_tls(settings)
    load_onnxruntime()
    configure_logs(settings.log_level, settings.log_format)
    with bind(settings) as listener:
        uvloop.run(serve(settings, listener, keys, tls))
    return 0


async def serve(
    settings: Settings, listener: socket.socket, keys: KeyRing, tls: Tls | None = None
) -> None:
    """Until SIGTERM or SIGINT; then running answers may end within `drain_seconds`. SIGHUP has the
    files of keys and certificates read again."""
    gateway = Gateway(settings, keys=keys)
    runner = make_runner(make_app(gateway), gateway.limits)
    await runner.setup()
    loaded = False
    with stop_signals() as stop, reloading(keys, tls):
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            context = None if tls is None else tls.context
            await web.SockSite(runner, listener, ssl_context=context).start()
            loaded = await _load_unless(stopped, settings, gateway)
            if not stop.is_set():
                _say(f"ready on {address(listener, secure=tls is not None)}")
            await stopped
            _say("stopping; once more stops at once")
        finally:
            stopped.cancel()
            await _close(gateway, runner)
    if not loaded:
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


@contextmanager
def reloading(keys: KeyRing, tls: Tls | None) -> Iterator[None]:
    """Within the block SIGHUP has read again what is read from files."""
    if sys.stdin.isatty() and not keys.from_files and tls is None:
        # Nothing is to be read again, and a terminal that hangs up ends what runs in it.
        yield
        return
    loop = asyncio.get_running_loop()

    def reload() -> None:
        keys.reload()
        if tls is not None:
            tls.reload()

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


async def _load_unless(stopped: asyncio.Task[bool], settings: Settings, gateway: Gateway) -> bool:
    """Whether loading ended before it was told to stop."""
    loading = asyncio.create_task(_load(settings, gateway), name="load")
    await asyncio.wait([loading, stopped], return_when=asyncio.FIRST_COMPLETED)
    if loading.done():
        await loading
        return True
    loading.cancel()
    return False


def _leave() -> NoReturn:
    """End the process without waiting for the thread that loads: nothing can interrupt it, and
    whoever joins it at exit would wait to the end of a load that nobody wants."""
    sys.stdout.flush()
    os._exit(0)


async def _load(settings: Settings, gateway: Gateway) -> None:
    started = time.monotonic()
    _say(f"checking {settings.package}")
    package = await asyncio.to_thread(load_package, settings.package)
    _say(f"loading {describe(package)}")
    engine = await Engine.start(
        package, settings.engine_options, report=_say, observer=gateway.metrics.engine
    )
    gateway.engine = engine
    exact = "exact" if engine.exact else "not exact: kernels depend on neighbouring rows"
    _say(f"loaded {package.manifest.name} in {time.monotonic() - started:.1f} s")
    _say(
        f"{engine.device}, {settings.slots} slots of {engine.context_length} tokens, {exact},"
        f" memory {engine.memory.describe()}"
    )


async def _close(gateway: Gateway, runner: web.AppRunner) -> None:
    # First drained, then closed: while answers end, who asks is told 503 and when to come again.
    await runner.shutdown()
    await runner.cleanup()
    if gateway.engine is not None:
        await gateway.engine.close()


def describe(package: Package) -> str:
    target = package.manifest.target
    rows = ", ".join(map(str, package.row_counts))
    return (
        f"{package.manifest.name} ({target.architecture}, {target.weight_type},"
        f" graphs for {rows} rows)"
    )


def bind(settings: Settings) -> socket.socket:
    """A bound socket. Raises `UserError` that says why there is none."""
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
        raise _cannot_listen(settings, OSError("this is no host name")) from None
    except OSError as error:
        raise _cannot_listen(settings, error) from None
    return listener


def _cannot_listen(settings: Settings, error: OSError) -> UserError:
    where = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        problem = f"port {settings.port} is in use: {where}. Choose another with --port"
    elif error.errno == errno.EACCES:
        problem = f"not allowed to listen on {where}; ports below 1024 need privileges"
    else:
        problem = f"cannot listen on {where}: {error.strerror or error}"
    return UserError(problem + ".", code="cannot_listen", param="port")


def address(listener: socket.socket, *, secure: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}/v1" if ":" in host else f"{scheme}://{host}:{port}/v1"


def make_tls(settings: Settings) -> Tls | None:
    """Raises `UserError` where the certificate cannot be used."""
    if settings.tls_certificate is None:
        return None
    return Tls(settings.tls_certificate, settings.tls_key)


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
