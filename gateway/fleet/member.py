"""One package of a gateway: loaded when somebody wants it, freed when nobody does, and loaded again
when its device failed."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from gateway.engine.closing import closing
from gateway.engine.status import EngineStatus
from gateway.fleet import refusals
from gateway.fleet.bringing import Bringing
from gateway.fleet.idle import IdleTimer
from gateway.fleet.loaded import Loaded, Use
from gateway.fleet.retiring import Retiring
from gateway.fleet.terms import Failures, Source, Terms
from gateway.http.backend import Engine
from models.errors import DeviceError, UserError

log = logging.getLogger(__name__)

State = Literal["unloaded", "loading", "loaded", "draining", "reloading", "failed", "stuck"]
Start = Callable[[Source], Awaitable[Engine]]

TOLD = frozenset({"device_error", "draining", "out_of_memory"})
"""Codes of failed loads that clients are told as they are."""


class Member:
    """`start` loads an engine. `require_room` raises `UserError` where there is no memory for one
    more of it, `changed` is told whenever an engine came or went.

    `problem` is what was last wrong; it is None again once the package is loaded.
    """

    def __init__(
        self,
        source: Source,
        terms: Terms,
        start: Start,
        require_room: Callable[[Source], None],
        changed: Callable[[], None],
    ) -> None:
        self.source = source
        self.loaded: Loaded | None = None
        self.retiring = Retiring(source.name, changed)
        self.problem: str | None = None
        self.failures = Failures(terms)
        self.loads = 0
        self.waiting = 0
        self._terms = terms
        self._start = start
        self._require_room = require_room
        self._changed = changed
        self._given_up = False
        self._starting = False
        self._recovering = False
        self._bringing = Bringing(source.name)
        self._timer = IdleTimer(terms.keep_alive, self._expire)
        self._last: EngineStatus | None = None

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def keep_alive(self) -> float:
        """Seconds that it stays loaded without being used; negative: for ever."""
        return self._timer.seconds

    @property
    def stuck(self) -> bool:
        return any(loaded.stuck for loaded in self.engines)

    @property
    def engines(self) -> tuple[Loaded, ...]:
        """All that are in memory."""
        return (*self.retiring.engines, *(() if self.loaded is None else (self.loaded,)))

    @property
    def claimed(self) -> int:
        """Bytes that its engines may take."""
        return self.source.need.total * (len(self.engines) + self._starting)

    @property
    def starting(self) -> int:
        """Bytes of an engine that is being loaded, and may not have taken them yet."""
        return self.source.need.total * self._starting

    @property
    def uses(self) -> int:
        return sum(loaded.uses for loaded in self.engines)

    @property
    def state(self) -> State:
        if self.stuck:
            return "stuck"
        if self.loaded is not None:
            return "loaded"
        if self._given_up:
            return "failed"
        if self._bringing.active:
            return "reloading" if self._recovering else "loading"
        return "draining" if self.retiring.engines else "unloaded"

    def status(self) -> EngineStatus | None:
        """Of its engine, or where none is loaded what the last one had measured; None where there
        was none yet."""
        if self.loaded is not None:
            return self.loaded.engine.status()
        return self._last

    async def use(self) -> Use:
        """Its engine, loaded if it is not. Raises `UserError`: `loading` where that takes too long,
        `queue_full` where too many wait for it, `package_failed`, `device_error`, and what loading
        does."""
        if self.loaded is None:
            await self._until_loaded()
        loaded = self.loaded
        assert loaded is not None, "it was loaded just now"
        self._timer.stop()
        return loaded.use()

    async def load(self, *, force: bool = False) -> None:
        """Have it loaded, also where it failed before; `force`: whether or not it seems to fit.

        Raises `UserError`: what loading does, and `draining` as soon as the gateway closes.
        """
        self._given_up = False
        self.failures.forgive()
        if self.loaded is None:
            await self._brought(force=force)
            self._require_hope()

    async def replace(self, *, force: bool = False) -> None:
        """Load it anew, beside the one that serves until then and whose answers may end. Raises
        what `load` does."""
        self.failures.forgive()
        self._given_up = False
        await self._brought(force=force)
        if self.loaded is None:
            self._require_hope()

    def unload(self) -> asyncio.Task[None] | None:
        """Free it when its answers have ended; new requests load it again. None: nothing is."""
        loaded = self._take_out()
        if loaded is None:
            return None
        return self.retiring.retire_soon(loaded, refusals.unloaded(self.name))

    def keep(self, seconds: float) -> None:
        """Have it unloaded when nobody used it for so long (negative: never)."""
        self._timer.seconds = seconds
        self._timer.stop()
        if self.loaded is not None:
            self._idle(self.loaded)

    def adopt(self, engine: Engine) -> None:
        """It was loaded by somebody else."""
        self.loaded = Loaded(engine, self._idle, self._lost)
        self.loads += 1
        self._changed()

    def mark_stuck(self, loaded: Loaded, seconds: float) -> None:
        """A run of `loaded` has taken `seconds`: its answers fail, and it goes if it comes back."""
        loaded.stuck = True
        loaded.engine.interrupt()
        loaded.end(refusals.device_stuck(seconds))
        self._lost(loaded, DeviceError(f"a run has not come back for {seconds:.0f} s"))

    def drain(self) -> None:
        """Nobody waits any more, and nothing is unloaded for lack of use."""
        self._bringing.drain()
        self._timer.stop()

    async def close(self) -> None:
        """Nothing is loaded any more, and its engines end."""
        self.drain()
        await self._bringing.cancel()
        await self.retiring.cancel()
        await asyncio.gather(*(loaded.engine.close() for loaded in self.engines))

    async def _until_loaded(self) -> None:
        if self.waiting >= self._terms.queue:
            raise refusals.too_many_waiting(self.name, self.waiting)
        self.waiting += 1
        try:
            async with asyncio.timeout(self._terms.load_seconds):
                while self.loaded is None:
                    self._require_hope()
                    with self._telling():
                        await self._brought()
        except TimeoutError:
            raise refusals.loading(self.name, self._terms.load_seconds) from None
        finally:
            self.waiting -= 1
            if self.loaded is not None:
                self._idle(self.loaded)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """What is wrong with the package, the operator is to know, and not who asks it."""
        try:
            yield
        except UserError as error:
            if error.code in TOLD:
                raise
            raise refusals.not_loadable(self.name) from error

    async def _brought(self, *, force: bool = False) -> None:
        """Until the load that runs, or a new one, has ended; `force` is for a new one. Raises what
        it does, and `draining` where the gateway closes."""
        if self._bringing.draining:
            raise closing()
        if not self._bringing.active:
            self._bringing.begin(self._load(force=force))
        await self._bringing.outcome()

    def _require_hope(self) -> None:
        if self._bringing.draining:
            raise closing()
        if self.stuck:
            raise refusals.device_stuck(self._terms.stuck_seconds or 0)
        if self._given_up:
            raise refusals.failed(self.name, self.failures.lately)

    async def _load(self, *, force: bool = False) -> None:
        if not force:
            self._require_space()
        self._starting = True
        try:
            engine = await self._start(self.source)
        except UserError as error:
            self._count(error.message)
            raise
        except Exception as error:
            log.exception("package %s cannot be loaded", self.name)
            self._count(str(error) or type(error).__name__)
            raise UserError(
                f"The model {self.name!r} could not be loaded; the gateway's log says why.",
                code="device_error",
            ) from error
        finally:
            self._starting = False
        before = self._take_out()
        self.problem = None
        self.adopt(engine)
        if before is not None:
            self.retiring.retire_soon(before, refusals.unloaded(self.name))
        assert self.loaded is not None, "adopted just now"
        self._idle(self.loaded)

    def _require_space(self) -> None:
        """That there is none is no failure of the package: except where it was there, and would be
        tried again without end."""
        try:
            self._require_room(self.source)
        except UserError as error:
            if self._recovering:
                self._count(error.message)
            raise

    def _count(self, problem: str) -> None:
        self.problem = problem
        self.failures.count()
        if self.failures.too_many:
            self._given_up = True
            log.error("package %s failed %d times", self.name, self.failures.lately)

    def _lost(self, loaded: Loaded, error: DeviceError) -> None:
        """Its device failed. Whoever runs on `loaded` may go on; nobody else begins there."""
        if loaded is not self.loaded:
            return
        log.error("package %s: %s; it will be loaded again", self.name, error, exc_info=error)
        self._take_out()
        self._count(str(error))
        if not self._bringing.active:
            self._recovering = True
            self._bringing.begin(self._recover(loaded))
        else:
            self.retiring.retire_soon(loaded, refusals.device_failed())

    async def _recover(self, loaded: Loaded) -> None:
        try:
            seconds = self._terms.drain_seconds
            await self.retiring.retire(loaded, seconds, refusals.device_lost(seconds))
            while not self._given_up:
                await asyncio.sleep(self.failures.pause)
                try:
                    await self._load()
                except UserError as error:
                    log.error("package %s is not back: %s", self.name, error.message)
                else:
                    return
        finally:
            self._recovering = False

    def _take_out(self) -> Loaded | None:
        """No request begins on it any more."""
        loaded, self.loaded = self.loaded, None
        self._timer.stop()
        if loaded is not None:
            self.retiring.add(loaded)
            now = loaded.engine.status()
            self._last = dataclasses.replace(
                now, free_slots=now.slots, running=0, waiting=0, kv_tokens=0
            )
        return loaded

    def _idle(self, loaded: Loaded) -> None:
        if loaded is self.loaded and not (loaded.uses or self.waiting or self._bringing.draining):
            self._timer.start()

    def _expire(self) -> None:
        if self.loaded is not None and self.loaded.uses == 0:
            log.info("package %s was not used for %g s", self.name, self.keep_alive)
            self.unload()
