"""Packages of scripted engines, for tests of what a gateway does with several."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from pathlib import Path

from gateway.engine.engine import Engine
from gateway.fleet.fleet import Fleet
from gateway.fleet.terms import Source, Terms
from gateway.http.gateway import Gateway
from models.memory import MemoryNeed
from models.package import Package, load_package, write_manifest
from tests.engine_support import CONTEXT, TestEngine, build_engine
from tests.fake_engine import FakeEngine, fake_package

NO_PAUSE = Terms(first_pause=0.0, drain_seconds=0.2)


def named(name: str) -> Package:
    package = fake_package()
    manifest = dataclasses.replace(package.manifest, name=name)
    return dataclasses.replace(package, manifest=manifest)


def source(name: str, need: int = 0) -> Source:
    """Of a package that needs so many bytes."""
    package = named(name)
    return Source(
        name, package.path, package.manifest, 1000, MemoryNeed(weights=need, kv=0, work=0)
    )


class Starts:
    """Starts scripted engines that say `answer`. While `gate` is clear a start waits; each of
    `errors` is raised by one of them."""

    def __init__(self, answer: str = "Hello", *, pace: float = 0.0) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: deque[Exception] = deque()
        self.asked: list[str] = []
        self.engines: list[FakeEngine] = []
        self._answer = answer
        self._pace = pace

    async def __call__(self, source: Source) -> FakeEngine:
        self.asked.append(source.name)
        await self.gate.wait()
        if self.errors:
            raise self.errors.popleft()
        engine = FakeEngine(self._answer, pace=self._pace)
        engine.package = named(source.name)
        self.engines.append(engine)
        return engine


async def fleet_of(
    *names: str, starts: Starts | None = None, terms: Terms = NO_PAUSE, started: bool = True
) -> tuple[Fleet, Starts]:
    fleet, starts = Fleet(terms), starts or Starts()
    for name in names:
        fleet.add(source(name), starts)
    if started:
        await fleet.start()
    return fleet, starts


async def furnish(gateway: Gateway, *names: str, starts: Starts | None = None) -> Starts:
    """Give a gateway packages of these names; the first is loaded."""
    starts = starts or Starts()
    for name in names:
        gateway.fleet.add(source(name), starts)
    await gateway.fleet.start()
    return starts


class RealStarts:
    """Starts engines on the tiny package whose runs a test can hold and break."""

    def __init__(self, path: Path, **options: int) -> None:
        self._path = path
        self._options = options
        self.engines: list[TestEngine] = []

    async def __call__(self, source: Source) -> Engine:
        package = load_package(self._path)
        manifest = dataclasses.replace(package.manifest, name=source.name)
        engine = build_engine(dataclasses.replace(package, manifest=manifest), **self._options)
        self.engines.append(engine)
        return engine

    def source(self, name: str) -> Source:
        package = load_package(self._path)
        manifest = dataclasses.replace(package.manifest, name=name)
        return Source(name, self._path, manifest, CONTEXT, MemoryNeed(1 << 20, 0, 0))

    def open_gates(self) -> None:
        for engine in self.engines:
            engine.target.gate.set()


def renamed(package: Package, directory: Path, name: str) -> Package:
    """The same package under another name, its files linked."""
    directory.mkdir(parents=True)
    for file in package.manifest.files:
        (directory / file).hardlink_to(package.file(file))
    write_manifest(directory, dataclasses.replace(package.manifest, name=name))
    return load_package(directory)
