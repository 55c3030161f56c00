"""A peer's process: its own Python, its own libraries, JSON lines in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.peers.catalogue import Configuration
from bench.peers.checkpoint import Forms
from bench.peers.contestants import Answer, PeerError, Prompt
from bench.run.schema import Absent

ADAPTERS = Path(__file__).parent / "adapters"
_LOAD_SECONDS = 1800.0
_ANSWER_SECONDS = 600.0
_END_SECONDS = 10.0
_LONGEST_LINE = 1 << 24


@dataclass(slots=True)
class PeerProcess:
    """A `Contestant` in a process of its own."""

    name: str
    settings: Mapping[str, Any]
    eos: tuple[int, ...]
    process: asyncio.subprocess.Process
    log: IO[bytes]
    versions: Mapping[str, str]

    @property
    def pid(self) -> int:
        return self.process.pid

    async def answer(self, prompt: Prompt, max_tokens: int) -> Answer:
        told = await self.ask("answer", ids=list(prompt.ids), max_tokens=max_tokens)
        # Some run past the limit by a draft; that is not part of the answer.
        ids = list(told["ids"])[:max_tokens]
        while ids and ids[-1] in self.eos:
            ids.pop()
        counts = {name: told.get(name) for name in ("drafted", "accepted", "rounds")}
        return Answer(tuple(ids), told["ms"], told["ttft_ms"], **counts)

    async def judge(self, ids: tuple[int, ...], answer: tuple[int, ...]) -> list[int]:
        """What the model would say at each place of `answer`; only the reference can."""
        told: list[int] = (await self.ask("judge", ids=list(ids), answer=list(answer)))["ids"]
        return told

    async def ask(
        self, method: str, seconds: float = _ANSWER_SECONDS, **arguments: Any
    ) -> dict[str, Any]:
        """Raises `PeerError` for an error of the peer, for its end, and for silence."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = json.dumps({"do": method, **arguments}) + "\n"
        try:
            async with asyncio.timeout(seconds):
                self.process.stdin.write(line.encode())
                await self.process.stdin.drain()
                reply = await self.process.stdout.readline()
        except TimeoutError:
            raise self._failed(f"no reply within {seconds:.0f} s") from None
        except ConnectionError:
            reply = b""
        if not reply:
            raise self._failed(f"its process ended. Its last words: {self._last_words()}")
        told: dict[str, Any] = json.loads(reply)
        if "error" in told:
            if told["unsupported"]:
                raise PeerError(Absent("unsupported", told["error"]))
            raise self._failed(told["error"])
        return told

    def _failed(self, why: str) -> PeerError:
        return PeerError(Absent("failed", f"{self.name}: {' '.join(why.split())[:600]}"))

    def _last_words(self) -> str:
        lines = Path(self.log.name).read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-3:])


@asynccontextmanager
async def running_peer(
    configuration: Configuration, python: Path, forms: Forms, threads: int
) -> AsyncIterator[PeerProcess]:
    """A peer that has loaded its model; it ends on leaving. Raises `PeerError`."""
    with tempfile.NamedTemporaryFile(prefix="outpace-peer-", suffix=".log") as log:
        process = await asyncio.create_subprocess_exec(
            str(python),
            str(ADAPTERS),
            configuration.peer.adapter,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=_environment(os.environ, threads),
            limit=_LONGEST_LINE,
        )
        settings = configuration.settings
        peer = PeerProcess(configuration.name, settings, forms.eos, process, log, {})
        try:
            told = await peer.ask(
                "load", _LOAD_SECONDS, weights=forms.wire(), threads=threads, settings=settings
            )
            peer.versions = told["versions"]
            yield peer
        finally:
            await _end(process)


def _environment(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """Without our own modules and the user's settings; nothing is fetched while it runs."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(("OUTPACE_", "PYTHON", "OMP_", "KMP_", "GOMP_"))
    }
    return kept | {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
        process.terminate()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
