"""`outpace serve` as a service manager starts it: told of by a socket, with sockets passed on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.notify_support import Listener, listening
from tests.patience import PATIENCE

ROOT = Path(__file__).parent.parent


@dataclass(slots=True)
class Service:
    """`lines` are what it says, on both streams."""

    process: asyncio.subprocess.Process
    listener: Listener
    lines: list[str] = field(default_factory=list)

    async def ready(self) -> str:
        """The origin that it serves, once it says that it is ready."""
        message = await self.listener.until(lambda lines: lines[0] == "READY=1")
        return message[1].partition("ready on ")[2].removesuffix("/v1")

    async def said(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(text in line for line in self.lines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE)


@asynccontextmanager
async def service(
    directory: Path,
    *arguments: str,
    before: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> AsyncIterator[Service]:
    """A gateway on the loopback. `before` is the command that starts it."""
    with listening(str(directory / "notify")) as listener:
        process = await asyncio.create_subprocess_exec(
            *before,
            *(sys.executable, "-m", "gateway", "serve", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "NOTIFY_SOCKET": listener.address, **(environment or {})},
        )
        running = Service(process, listener)
        assert process.stdout is not None
        reading = asyncio.create_task(_read(process.stdout, running.lines))
        try:
            yield running
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await reading


async def _read(stream: asyncio.StreamReader, lines: list[str]) -> None:
    while line := await stream.readline():
        lines.append(line.decode(errors="replace").strip())
