"""A thread that compiles constraints, one at a time, for keys that take turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gateway.engine.turns import Turns
from models.constraints.guide import Grammar
from models.constraints.source import ConstraintSource
from models.constraints.trial import STACK


def _future() -> asyncio.Future[Grammar]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Job:
    """One constraint of a key's; `waiting` counts who waits for it."""

    source: ConstraintSource
    key: str | None
    result: asyncio.Future[Grammar] = field(default_factory=_future)
    waiting: int = 0


class CompileLane:
    """Lives on an event loop. `went` is told there what became of each job."""

    def __init__(
        self,
        name: str,
        compile_: Callable[[ConstraintSource], Grammar],
        went: Callable[[Job, Grammar | BaseException], None],
    ) -> None:
        self._name = name
        self._compile = compile_
        self._went = went
        self._turns: Turns[Job] = Turns()
        self._task: asyncio.Task[None] | None = None
        self._thread = _roomy_thread(name)

    def add(self, job: Job) -> None:
        self._turns.add(job.key, job)
        self._go_on()

    def remove(self, job: Job) -> bool:
        """Whether it waited for its turn."""
        return self._turns.remove(job.key, job)

    async def call(self, work: Callable[[], None]) -> None:
        """Do this on the thread, behind what it does now."""
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """What waits is left; what is being compiled comes to its end."""
        self._turns = Turns()
        if self._task is not None:
            await asyncio.wait([self._task])

    def shut(self) -> None:
        self._thread.shutdown(wait=False)

    def _go_on(self) -> None:
        if self._task is None and self._turns:
            job = self._turns.pop()
            self._turns.served(job.key)
            self._task = asyncio.create_task(self._run(job), name=f"{self._name} constraint")
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._go_on()

    async def _run(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        result: Grammar | BaseException
        try:
            result = await loop.run_in_executor(self._thread, self._compile, job.source)
        except Exception as error:  # handed to who waits for the job
            result = error
        self._went(job, result)


def _roomy_thread(name: str) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-constraint")
    # The size is that of every thread begun from now on: this one begins with its first job.
    usual = threading.stack_size(STACK)
    try:
        pool.submit(int)
    finally:
        threading.stack_size(usual)
    return pool
