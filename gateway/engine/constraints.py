"""The constraints of an engine's requests: compiled beside what runs, kept for the next ones.

Most are compiled in milliseconds, some take seconds. Two lanes keep these from those: in the first
nothing takes longer than the quick trial, and what does goes on to the second. In each, keys take
turns.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import Protocol

from gateway.engine.closing import closing, outcome_of
from gateway.engine.lanes import CompileLane, Job
from models.constraints.compiler import TooSlowError
from models.constraints.guide import Grammar, Guide
from models.constraints.lenient import LenientGuide
from models.constraints.source import ConstraintSource
from models.errors import UserError

KEPT = 32
"""Grammars, and what was learnt of their states: megabytes each where they are large."""

SECONDS = 10.0
"""To compile one, waiting for one's turn included. Limits on its size bound it alone."""

REFUSED, REFUSED_SECONDS = 64, 600.0
"""Refusals that took long to find are kept, so many and so long: the machine may only be busy."""

Named = tuple[ConstraintSource, tuple[str, ...]]
"""A constraint, and the fields that errors about it name."""


class Compiler(Protocol):
    """What is needed of `models.constraints.compiler.GrammarCompiler`."""

    def prepare(self) -> None: ...

    def compile(self, source: ConstraintSource, *, patient: bool = True) -> Grammar: ...

    def close(self) -> None: ...


class Constraints:
    """Lives on the engine's event loop."""

    def __init__(self, compiler: Compiler, kept: int = KEPT, seconds: float = SECONDS) -> None:
        self._compiler = compiler
        self._kept = kept
        self._seconds = seconds
        self._grammars: OrderedDict[ConstraintSource, Grammar] = OrderedDict()
        self._refused: OrderedDict[Named, tuple[float, UserError]] = OrderedDict()
        # Whoever asks for the same by the same fields and with the same key, whose turn it is,
        # waits for the same job.
        self._jobs: dict[tuple[Named, str | None], Job] = {}
        self._quick = CompileLane("quick", partial(self._compile, patient=False), self._went)
        self._patient = CompileLane("patient", partial(self._compile, patient=True), self._went)
        self._closed = False

    async def prepare(self) -> None:
        """Make now what the first constraint would wait for."""
        await self._quick.call(self._compiler.prepare)

    async def guide(self, source: ConstraintSource, key: str | None = None) -> Guide:
        """For one answer. Raises `UserError` that names the source's field."""
        grammar = await self.grammar(source, key)
        return LenientGuide(grammar, source) if source.lenient else grammar.guide(source)

    async def grammar(self, source: ConstraintSource, key: str | None = None) -> Grammar:
        """Compiled when it is the turn of `key`, or kept since. Raises `UserError` that names the
        source's field, or `draining`."""
        if self._closed:
            raise closing()
        known = self._known(source)
        if known is not None:
            return known
        job = self._jobs.get((_named(source), key))
        if job is None:
            job = self._jobs[_named(source), key] = Job(source, key)
            self._quick.add(job)
        job.waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                # A request that is cancelled must not end what others wait for.
                return await outcome_of(job.result)
        except TimeoutError:
            raise source.refusal(
                f"was not compiled within {self._seconds:g} s", "unsupported_value"
            ) from None
        finally:
            job.waiting -= 1
            if job.waiting == 0:
                self._leave(job)

    async def close(self) -> None:
        """What is being compiled comes to its end first, which is near."""
        if self._closed:
            return
        self._closed = True
        for job in self._jobs.values():
            _fail(job, closing())
        for lane in (self._quick, self._patient):
            await lane.close()
        await self._patient.call(self._compiler.close)
        for lane in (self._quick, self._patient):
            lane.shut()

    def _known(self, source: ConstraintSource) -> Grammar | None:
        known = self._grammars.get(source)
        if known is not None and not known.broken:
            self._grammars.move_to_end(source)
            return known
        until, error = self._refused.get(_named(source), (0.0, None))
        if error is not None and until > asyncio.get_running_loop().time():
            raise UserError(error.message, code=error.code, param=error.param)
        return None

    def _compile(self, source: ConstraintSource, *, patient: bool) -> Grammar:
        """On a lane's thread."""
        return self._compiler.compile(source, patient=patient)

    def _leave(self, job: Job) -> None:
        """Nobody waits for it any more: it need not have its turn."""
        if self._quick.remove(job) or self._patient.remove(job):
            self._end(job)
            job.result.cancel()

    def _went(self, job: Job, result: Grammar | BaseException) -> None:
        """What a lane came to with a job."""
        if isinstance(result, TooSlowError) and job.waiting and not self._closed:
            self._patient.add(job)
            return
        self._end(job)
        if isinstance(result, Grammar):
            self._keep(job.source, result)
            if not job.result.done():
                job.result.set_result(result)
            return
        if isinstance(result, UserError) and result.code == "unsupported_value":
            self._refuse(job.source, result)
        if not job.waiting:
            job.result.cancel()
        else:
            _fail(job, result)

    def _end(self, job: Job) -> None:
        del self._jobs[_named(job.source), job.key]

    def _keep(self, source: ConstraintSource, grammar: Grammar) -> None:
        self._grammars[source] = grammar
        self._grammars.move_to_end(source)
        while len(self._grammars) > self._kept:
            self._grammars.popitem(last=False)

    def _refuse(self, source: ConstraintSource, error: UserError) -> None:
        until = asyncio.get_running_loop().time() + REFUSED_SECONDS
        self._refused[_named(source)] = until, error
        self._refused.move_to_end(_named(source))
        while len(self._refused) > REFUSED:
            self._refused.popitem(last=False)


def _fail(job: Job, error: BaseException) -> None:
    if not job.result.done():
        job.result.set_exception(error)
        # Heard here too: nobody may be waiting.
        job.result.exception()


def _named(source: ConstraintSource) -> Named:
    return source, (source.param, *(schema.param for schema in source.schemas))
