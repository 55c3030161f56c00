"""A gateway on a loop in a thread of its own, for tests that are not coroutines."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.http.backend import Engine
from tests.http_serving import Served, serving, until
from tests.patience import PATIENCE

T = TypeVar("T")
SECONDS = 30.0


@dataclass
class ServerThread:
    """`errors` are what was logged as an error since it was last looked at."""

    loop: asyncio.AbstractEventLoop
    served: Served
    engine: Engine
    errors: list[str] = field(default_factory=list)

    def run(self, work: Coroutine[Any, Any, T], seconds: float = SECONDS) -> T:
        """What `work` comes to, on the server's loop. Raises `TimeoutError` where that hangs."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def connections(self) -> int:
        assert self.served.runner.server is not None
        return len(self.served.runner.server.connections)

    async def idle(self) -> None:
        """Nothing runs or waits, and every slot is free."""

        def quiet() -> bool:
            status = self.engine.status()
            return self.served.gateway.running == status.running == status.waiting == 0 and (
                status.free_slots == status.slots
            )

        await until(quiet)

    def take_errors(self) -> list[str]:
        taken, self.errors = self.errors, []
        return taken


@asynccontextmanager
async def given(engine: Engine) -> AsyncIterator[Engine]:
    yield engine


@contextmanager
def server_thread(
    make: Callable[[], AbstractAsyncContextManager[Engine]], **settings: Any
) -> Iterator[ServerThread]:
    """`make` is called on the loop that the engine will live on."""
    started: Future[tuple[ServerThread, asyncio.Event]] = Future()

    async def serve() -> None:
        async with make() as engine, serving(engine, **settings) as served:
            stop = asyncio.Event()
            server = ServerThread(asyncio.get_running_loop(), served, engine)
            with _noting_errors(server):
                started.set_result((server, stop))
                await stop.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=work, name="server")
    thread.start()
    server, stop = started.result(120)
    try:
        yield server
    finally:
        server.loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server hangs"


@contextmanager
def _noting_errors(server: ServerThread) -> Iterator[None]:
    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            server.errors.append(f"{record.name}: {record.getMessage()}")

    handler = Noting(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
