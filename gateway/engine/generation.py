"""Generations: answers in the making, as their consumers see them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType

from gateway.engine.answer import Answer, Resources
from gateway.engine.choices import SharedPrompt
from gateway.engine.closing import closing
from gateway.engine.deltas import merge
from gateway.engine.requests import Delta, Event, GenerationRequest, PromptScored


class Generation:
    """An answer in the making: an async context manager, and an iterator of its events.

    The coroutine that generates never waits for the consumer. Deltas that wait are merged into
    one. Leaving the block cancels the generation within one round and frees its slot; `cancel`
    does so too and lets the iterator end with `Finished("cancelled")`. Of several choices the one
    with `index` 0 prefills the `prompt` that they share.
    """

    def __init__(
        self, request: GenerationRequest, resources: Resources, prompt: SharedPrompt, index: int
    ) -> None:
        self.request = request
        self._resources = resources
        self._answer = Answer(request, resources, self._emit)
        self._prompt = prompt
        self._first = index == 0
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._begun = False
        self._ended = False
        self._cancelled = False

    async def __aenter__(self) -> Generation:
        self._resources.entering(1)
        self._task = asyncio.create_task(self._run(), name="generation")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._begun:
            self._resources.entering(-1)
        if self._first:
            self._prompt.settle()

    def cancel(self) -> None:
        """Stop within one round; the iterator then ends with `Finished("cancelled")`."""
        self._cancelled = True
        # A task cancelled before its first step would never run, and never say that it ended.
        if self._task is not None and self._begun:
            self._task.cancel()

    def fail(self, error: Exception) -> None:
        """End now, whatever it waits for; the iterator raises `error`."""
        if self._ended or self._failure is not None:
            return
        self._failure = error
        if self._task is not None and self._begun:
            self._task.cancel()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        first = self._events.popleft()
        if not isinstance(first, Delta):
            return first
        waiting = [first]
        while self._events and isinstance(self._events[0], Delta):
            following = self._events.popleft()
            assert isinstance(following, Delta)
            waiting.append(following)
        return merge(waiting)

    async def _run(self) -> None:
        self._begun = True
        try:
            await self._generate()
        except Exception as error:  # handed to the consumer, who re-raises it
            self._failure = error
        finally:
            self._ended = True
            self._arrived.set()
            self._answer.ended(self._failure)
            if self._first:
                self._prompt.settle()

    async def _generate(self) -> None:
        try:
            scored = await self._until_it_may_begin()
            await self._answer.generate(scored, self._prompt.settle if self._first else None)
        except asyncio.CancelledError:
            if self._cancelled:
                self._answer.cancel()
            elif _is_cancelled():
                raise
            else:
                # What it waited for was cancelled under it: that is left when an engine closes.
                raise closing() from None

    async def _until_it_may_begin(self) -> PromptScored | None:
        try:
            if self._failure is not None:
                raise self._failure
            if self._cancelled:
                raise asyncio.CancelledError
            await self._answer.prepare()
            return None if self._first else await self._prompt.wait()
        finally:
            self._resources.entering(-1)

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        self._arrived.set()


def _is_cancelled() -> bool:
    """Whether somebody cancelled the present task itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
