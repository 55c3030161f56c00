"""An engine in memory, and who works with it."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from gateway.fleet.refusals import device_failed
from gateway.http.backend import Engine
from models.errors import DeviceError, UserError


class Ending(Protocol):
    """An answer in the making."""

    def fail(self, error: Exception) -> None:
        """End now; whoever reads it is raised `error`."""


class Loaded:
    """`uses` is how many work with it. `idle` and `failed` are told when nobody does any more, and
    what its device failed with."""

    def __init__(
        self,
        engine: Engine,
        idle: Callable[[Loaded], None],
        failed: Callable[[Loaded, DeviceError], None],
    ) -> None:
        self._engine: Engine | None = engine
        self.uses = 0
        self.idle_since = time.monotonic()
        self.stuck = False
        self.answers: set[Ending] = set()
        self._idle = idle
        self._failed = failed
        self._unused = asyncio.Event()
        self._unused.set()

    @property
    def engine(self) -> Engine:
        assert self._engine is not None, "it was not forgotten"
        return self._engine

    def forget(self) -> None:
        """It is closed: hold it no longer."""
        self._engine = None

    def use(self) -> Use:
        self.uses += 1
        self._unused.clear()
        return Use(self)

    def left(self) -> None:
        self.uses -= 1
        assert self.uses >= 0, "a use ends once"
        if self.uses == 0:
            self.idle_since = time.monotonic()
            self._unused.set()
            self._idle(self)

    def failed(self, error: DeviceError) -> UserError:
        """What to tell whoever asked."""
        self._failed(self, error)
        return device_failed()

    def end(self, error: Exception) -> None:
        """All its answers fail with `error`."""
        for answer in list(self.answers):
            answer.fail(error)

    async def unused(self, seconds: float | None) -> bool:
        """Wait until nobody works with it; whether that came within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._unused.wait()
        except TimeoutError:
            return False
        return True


class Use:
    """Keeps an engine loaded: until `release`, or until nobody has it any more."""

    def __init__(self, loaded: Loaded) -> None:
        self.engine = loaded.engine
        self._loaded = loaded
        loop = asyncio.get_running_loop()
        # An answer may be made and never begun; a collector may find that on any thread.
        self._forgotten = weakref.finalize(self, _forgotten, loop, loaded)
        self._forgotten.atexit = False

    def again(self) -> Use:
        """A further one of the same engine."""
        return self._loaded.use()

    def begin(self, answer: Ending) -> None:
        """`answer` is ended if the engine has to go."""
        self._loaded.answers.add(answer)

    def end(self, answer: Ending) -> None:
        """`answer` ended."""
        self._loaded.answers.discard(answer)
        self.release()

    def failed(self, error: DeviceError) -> UserError:
        return self._loaded.failed(error)

    def release(self) -> None:
        if self._forgotten.detach() is not None:
            self._loaded.left()


def _forgotten(loop: asyncio.AbstractEventLoop, loaded: Loaded) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loaded.left)
