"""Responses that go on when nobody reads them, each in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.http.responses.journal import Entry
from gateway.trace import CURRENT, Trace, Traces, request_id


class Background:
    """Owns the tasks."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, entries: AsyncGenerator[Entry]) -> None:
        """Read `entries` to the end."""
        trace = Trace(request_id(), "BACKGROUND", "/v1/responses")
        asked = CURRENT.get()
        if asked is not None:
            # The request that asked for it ends long before its answer.
            trace.id, trace.key, trace.answers = asked.id, asked.key, asked.answers
            asked.answers = []
        task = asyncio.create_task(self._run(entries, trace), name="background response")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, entries: AsyncGenerator[Entry], trace: Trace) -> None:
        with self._traces.running(trace):
            async with aclosing(entries):
                async for entry in entries:
                    if entry.type == "response.failed":
                        trace.status = 500
            trace.status = trace.status or 200
