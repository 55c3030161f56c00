"""The generations of one request: started together, read as one stream, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from gateway.engine.requests import Event, GenerationRequest
from gateway.http.backend import Generation


class Opener(Protocol):
    """What opens generations: an engine, or what stands before it."""

    def open_choices(self, request: GenerationRequest, n: int) -> Sequence[Generation]: ...


class Choices:
    """Running generations, numbered as they were opened."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._generations = tuple(generations)

    def __len__(self) -> int:
        return len(self._generations)

    @property
    def seeds(self) -> list[int | None]:
        return [generation.request.sampling.seed for generation in self._generations]

    def cancel(self) -> None:
        """End all of them within a round."""
        for generation in self._generations:
            generation.cancel()

    async def events(self) -> AsyncGenerator[tuple[int, Event]]:
        """Events with the number of their choice, as they come; the first failure is raised.

        A choice is read again once its event was taken, so what a slow reader leaves behind is
        merged by the generation: at most one event per choice waits here.
        """
        readers = [aiter(generation) for generation in self._generations]
        if len(readers) == 1:
            # Nothing to merge: no task per event.
            async for event in readers[0]:
                yield 0, event
            return
        reads = {_read(reader): index for index, reader in enumerate(readers)}
        try:
            while reads:
                done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in sorted(done, key=reads.__getitem__):
                    found, index = read.result(), reads.pop(read)
                    if found is not None:
                        yield index, found
                        reads[_read(readers[index])] = index
        finally:
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)


@asynccontextmanager
async def opened(
    opener: Opener, requests: Sequence[GenerationRequest], n: int
) -> AsyncGenerator[Choices]:
    """`n` choices for each of `requests`, prompt by prompt. Leaving the block cancels them.

    Raises the `UserError` of the first that the engine refuses; none goes on then.
    """
    async with AsyncExitStack() as stack:
        generations: list[Generation] = []
        for request in requests:
            # Entered before the next are opened: the engine's queue counts what was entered.
            for generation in opener.open_choices(request, n):
                generations.append(await stack.enter_async_context(generation))
        choices = Choices(generations)
        # Called before the first block is left: they end in the same round, not one by one.
        stack.callback(choices.cancel)
        yield choices


def _read(reader: AsyncIterator[Event]) -> asyncio.Task[Event | None]:
    return asyncio.create_task(_next(reader), name="choice")


async def _next(reader: AsyncIterator[Event]) -> Event | None:
    return await anext(reader, None)
