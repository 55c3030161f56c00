"""The constraints of an engine's requests: compiled beside what runs, kept for the next ones."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from models.constraints.guide import Grammar, Guide
from models.constraints.source import ConstraintSource
from models.constraints.trial import STACK

KEPT = 32
"""Grammars, and what was learnt of their states: megabytes each where they are large."""

SECONDS = 10.0
"""To compile one. Limits on its size bound that; this is for a machine that is busy."""


class Compiler(Protocol):
    """What is needed of `models.constraints.compiler.GrammarCompiler`."""

    def prepare(self) -> None: ...

    def compile(self, source: ConstraintSource) -> Grammar: ...

    def close(self) -> None: ...


class Constraints:
    """Lives on the engine's event loop. One thread compiles, one constraint at a time."""

    def __init__(self, compiler: Compiler, kept: int = KEPT, seconds: float = SECONDS) -> None:
        self._compiler = compiler
        self._kept = kept
        self._seconds = seconds
        self._grammars: OrderedDict[ConstraintSource, Grammar] = OrderedDict()
        # By their fields too, which errors name.
        self._compiling: dict[tuple[ConstraintSource, str], asyncio.Task[Grammar]] = {}
        self._thread = _roomy_thread()
        self._closed = False

    async def prepare(self) -> None:
        """Make now what the first constraint would wait for."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._compiler.prepare)

    async def guide(self, source: ConstraintSource) -> Guide:
        """For one answer. Raises `UserError` that names the source's field."""
        return (await self.grammar(source)).guide(source)

    async def grammar(self, source: ConstraintSource) -> Grammar:
        """Compiled now, or kept since. Raises `UserError` that names the source's field."""
        known = self._grammars.get(source)
        if known is not None and not known.broken:
            self._grammars.move_to_end(source)
            return known
        try:
            async with asyncio.timeout(self._seconds):
                # A request that is cancelled must not end what others wait for.
                return await asyncio.shield(self._compile_once(source))
        except TimeoutError:
            raise source.refusal(
                f"was not compiled within {self._seconds:g} s", "unsupported_value"
            ) from None

    async def close(self) -> None:
        """What is being compiled comes to its end first, which is near."""
        if self._closed:
            return
        self._closed = True
        for task in self._compiling.values():
            task.cancel()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._compiler.close)
        self._thread.shutdown(wait=False)

    def _compile_once(self, source: ConstraintSource) -> asyncio.Task[Grammar]:
        task = self._compiling.get((source, source.param))
        if task is None:
            task = asyncio.create_task(self._compile(source), name="constraint")
            self._compiling[source, source.param] = task
            task.add_done_callback(lambda done: self._end(source, done))
        return task

    async def _compile(self, source: ConstraintSource) -> Grammar:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._compiler.compile, source)

    def _end(self, source: ConstraintSource, done: asyncio.Task[Grammar]) -> None:
        """Keep what came of it. What it failed with is heard here too: nobody may be waiting."""
        del self._compiling[source, source.param]
        if done.cancelled() or done.exception() is not None:
            return
        self._grammars[source] = done.result()
        self._grammars.move_to_end(source)
        while len(self._grammars) > self._kept:
            self._grammars.popitem(last=False)


def _roomy_thread() -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(1, thread_name_prefix="constraint")
    # The size is that of every thread begun from now on: this one begins with its first job.
    usual = threading.stack_size(STACK)
    try:
        pool.submit(int)
    finally:
        threading.stack_size(usual)
    return pool
