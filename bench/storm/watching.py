"""What a gateway's process uses, and what its log says, while nobody asks it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import resident_bytes

SAMPLE_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
# As the gateway writes it, as text or as JSON.
_LINE = re.compile(r"\S+ \S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+): (.*)")
_ERRORS = ("warning", "error", "critical")
# What these loggers say is of what a client sent instead of HTTP, or offered as protocols.
_OF_CLIENTS = ("aiohttp.server", "aiohttp.websocket", "gateway.http.server")


@dataclass(slots=True)
class Memory:
    """Resident bytes by seconds since the first sample."""

    samples: list[tuple[float, int]] = field(default_factory=list)

    @property
    def peak(self) -> int:
        return max(size for _, size in self.samples)


@asynccontextmanager
async def watched_memory(pid: int) -> AsyncIterator[Memory]:
    memory, started = Memory(), time.monotonic()

    async def sample() -> None:
        while True:
            memory.samples.append((time.monotonic() - started, resident_bytes(pid)))
            await asyncio.sleep(SAMPLE_SECONDS)

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sample())
        try:
            yield memory
        finally:
            sampling.cancel()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    behind_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(behind_name[11]) + int(behind_name[12])) / _TICKS


@dataclass(frozen=True, slots=True)
class Logged:
    """A line of a log: `level` in small letters, and the first line of what it says."""

    level: str
    logger: str
    message: str

    @property
    def is_error(self) -> bool:
        return self.level in _ERRORS

    @property
    def of_a_client(self) -> bool:
        return self.logger.startswith(_OF_CLIENTS)


def read_log(file: Path) -> list[Logged]:
    text = file.read_text(encoding="utf-8", errors="replace")
    return list(logged(text))


def logged(text: str) -> Iterator[Logged]:
    """What has a level; other lines go on with the one before, or are no log."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None:
            yield Logged(found[1].lower(), found[2], found[3])
        elif line.startswith("{"):
            document = _decoded(line)
            if {"level", "logger", "message"} <= document.keys():
                yield Logged(document["level"], document["logger"], document["message"])


def _decoded(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
