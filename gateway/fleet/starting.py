"""Engines of configured packages, and what their directories keep of users."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gateway.engine.device_turns import DeviceTurns
from gateway.engine.engine import Engine
from gateway.engine.ngram_opening import open_store
from gateway.engine.observer import Observer
from gateway.engine.options import EngineOptions
from gateway.fleet.sources import options_of
from gateway.fleet.steps import Say, Steps
from gateway.fleet.terms import Source
from gateway.service_manager.manager import STEP_SECONDS
from models.errors import UserError
from models.package import Package, load_package

log = logging.getLogger(__name__)


class Starter:
    """Loads engines. `default` is the name of the package that the settings mean first, whose
    n-grams lie where they always did. `observer` gives that of a package.

    A load of which one step takes more than `step_seconds` is given up. Its thread cannot be ended,
    so until that comes back the package is not tried again: each attempt would leave one more.
    """

    def __init__(
        self,
        options: EngineOptions,
        default: str,
        turns: DeviceTurns,
        observer: Callable[[str], Observer],
        say: Say,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        self._options = options
        self._default = default
        self._turns = turns
        self._observer = observer
        self._say = say
        self._step_seconds = step_seconds
        self._hanging: dict[str, asyncio.Task[Engine]] = {}

    async def __call__(self, source: Source) -> Engine:
        """Raises `UserError` where it cannot be loaded."""
        name = source.name
        if name in self._hanging:
            raise UserError(
                f"the last attempt to load {name!r} still hangs: start the gateway again.",
                code="device_error",
            )
        steps = Steps(self._say, self._step_seconds)
        starting = asyncio.create_task(self._start(source, steps.say), name=f"start {name}")
        try:
            if await steps.goes_on(starting):
                return starting.result()
        except asyncio.CancelledError:
            starting.cancel()
            await asyncio.wait([starting])
            raise
        self._hanging[name] = starting
        starting.add_done_callback(lambda task: self._came_back(name, task))
        raise UserError(
            f"loading {name!r} does not get on: for {self._step_seconds:g} s it is at"
            f" {steps.last!r}.",
            code="device_error",
        )

    def _came_back(self, name: str, task: asyncio.Task[Engine]) -> None:
        log.warning("the attempt to load %s that hung came back; it may be tried again", name)
        if task.cancelled() or task.exception() is not None:
            del self._hanging[name]
            return
        # Nobody waits for it any more; until it is closed its memory is taken.
        closing = asyncio.create_task(task.result().close(), name=f"close {name}")
        closing.add_done_callback(lambda _: self._hanging.pop(name))

    async def _start(self, source: Source, say: Say) -> Engine:
        assert source.path is not None, "it is one of the settings"
        started = time.monotonic()
        say(f"checking {source.path}")
        package = await asyncio.to_thread(load_package, source.path)
        if package.manifest.name != source.name:
            raise UserError(
                f"the package in {source.path} is called {package.manifest.name!r} now, and was"
                f" {source.name!r} when the gateway was started: start it again.",
                code="package_changed",
                param="package",
            )
        say(f"loading {describe(package)}")
        engine = await Engine.start(
            package,
            self._options_of(source),
            report=say,
            observer=self._observer(source.name),
            turns=self._turns,
        )
        say(f"loaded {source.name} in {time.monotonic() - started:.1f} s")
        exact = "exact" if engine.exact else "not exact: kernels depend on neighbouring rows"
        say(
            f"{engine.device}, {self._options.slots} slots of {engine.context_length} tokens,"
            f" {exact}, memory {engine.memory.describe()}"
        )
        return engine

    async def forget(self, source: Source, user: str) -> None:
        """Delete what is kept on disk of a user, for a package that is not loaded."""
        assert source.path is not None, "it is one of the settings"
        options = self._options_of(source)
        if options.ngram_store is None or not options.ngram_store.is_dir():
            return
        store = open_store(Package(source.path, source.manifest), options)
        assert store is not None, "a directory for it is set"
        try:
            await store.forget(user)
        finally:
            await store.close()

    def _options_of(self, source: Source) -> EngineOptions:
        default = source.name == self._default
        return options_of(source, self._options, default=default)


def describe(package: Package) -> str:
    target = package.manifest.target
    rows = ", ".join(map(str, package.row_counts))
    return (
        f"{package.manifest.name} ({target.architecture}, {target.weight_type},"
        f" graphs for {rows} rows)"
    )
