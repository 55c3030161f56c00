"""The gateway as one of the contestants: over its WebSocket, by the client's clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bench.client import GatewayError, connected
from bench.gateway_process import running_gateway
from bench.machine import versions
from bench.peers.contestants import Answer, PeerError, Prompt
from bench.run.schema import Absent
from bench.setup import Setup
from models.errors import UserError
from models.sampling.parameters import Sampling

DEFAULT = "default"
OFF = "off"
_SPECULATION: Mapping[str, Mapping[str, Any] | None] = {DEFAULT: None, OFF: {"policy": "off"}}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A `Contestant`."""

    name: str
    url: str
    pid: int
    speculation: Mapping[str, Any] | None
    settings: Mapping[str, Any]
    versions: Mapping[str, str]

    async def answer(self, prompt: Prompt, max_tokens: int) -> Answer:
        try:
            async with connected(self.url) as client:
                started = time.perf_counter()
                answer = await client.ask(
                    prompt.question.turns[0],
                    max_tokens=max_tokens,
                    sampling=Sampling(temperature=0.0),
                    speculation=self.speculation,
                    provenance=True,
                )
                ended = time.perf_counter()
        except GatewayError as error:
            raise PeerError(Absent("failed", f"{self.name}: {error}")) from None
        if answer.prompt_tokens != len(prompt.ids):
            why = f"{self.name} made {answer.prompt_tokens} tokens of a prompt of {len(prompt.ids)}"
            raise PeerError(Absent("not_comparable", why))
        ms = (ended - started) * 1e3
        drafts = self.speculation is None
        return Answer(
            ids=answer.ids,
            ms=ms,
            ttft_ms=ms if answer.ttft_ms is None else answer.ttft_ms,
            drafted=answer.timings["draft_n"] if drafts else None,
            accepted=answer.timings["draft_n_accepted"] if drafts else None,
            rounds=answer.timings["rounds"],
        )


@asynccontextmanager
async def running_ours(setup: Setup, mode: str) -> AsyncIterator[Gateway]:
    """A gateway with its own defaults. Raises `PeerError` where it does not start."""
    weight_type = setup.package.manifest.target.weight_type
    try:
        async with running_gateway(setup) as process:
            yield Gateway(
                name=name_of(setup, mode),
                url=process.url,
                pid=process.pid,
                speculation=_SPECULATION[mode],
                settings={"weights": weight_type, "speculation": _SPECULATION[mode] or DEFAULT},
                versions=versions(),
            )
    except UserError as error:
        raise PeerError(Absent("failed", error.message)) from None


def name_of(setup: Setup, mode: str) -> str:
    return f"Outpace {setup.package.manifest.target.weight_type} {mode}"
