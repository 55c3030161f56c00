"""Options of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.engine.names import AUTO
from models.errors import UserError
from models.providers import DeviceOptions

IDLE_CHUNK = 256
BUSY_CHUNK = 32


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine runs a package.

    `slots` requests run at once, `queue` more may wait, each `queue_seconds` at most (None: without
    end). `context` tokens per slot (None: the package's). A prompt is prefilled in chunks of
    `prefill_chunk` tokens; while other answers are streaming of `busy_chunk` for each prompt that
    waits, so that gaps stay short. With `trees` the graphs for drafts that branch are loaded at
    start, not when the first request needs them; those of `drafter` always are. `ngram_store` is
    the directory of what was said to each user (None: it is forgotten), of `ngram_store_mib` MiB
    at most. With `share_prefixes` requests of any key find the K/V that is kept, not of the one
    alone that wrote it. Without `check_memory` it is loaded whether or not it seems to fit; without
    `check_parts` so are the graphs for trees and drafters, which come after it. The `gpu_` ones are
    those of `models.providers.DeviceOptions`.
    """

    device: str = "auto"
    slots: int = 4
    threads: int | None = None
    context: int | None = None
    queue: int = 64
    queue_seconds: float | None = 120.0
    prefill_chunk: int = IDLE_CHUNK
    busy_chunk: int = BUSY_CHUNK
    trees: bool = False
    drafter: str = AUTO
    ngram_store: Path | None = None
    ngram_store_mib: int = 64
    share_prefixes: bool = False
    check_memory: bool = True
    check_parts: bool = True
    gpu_memory_mib: int | None = None
    gpu_graphs: bool = True
    gpu_strict_width: int | None = None
    gpu_gemm: str = "auto"
    gpu_share_weights: bool = True

    @property
    def device_use(self) -> DeviceOptions:
        return DeviceOptions(
            memory_mib=self.gpu_memory_mib,
            graphs=self.gpu_graphs,
            strict_width=self.gpu_strict_width,
            gemm=self.gpu_gemm,
            share_weights=self.gpu_share_weights,
        )

    def __post_init__(self) -> None:
        for name, least in (
            ("slots", 1),
            ("queue", 0),
            ("queue_seconds", 0),
            ("prefill_chunk", 2),
            ("busy_chunk", 2),
            ("threads", 1),
            ("context", 16),
            ("ngram_store_mib", 1),
            ("gpu_memory_mib", 64),
            ("gpu_strict_width", 2),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(
                    f"{name} must be at least {least}, not {value}.",
                    code="invalid_setting",
                    param=name,
                )
        if self.gpu_strict_width is not None and not self.gpu_graphs:
            raise UserError(
                "gpu_strict_width needs gpu_graphs: only captured runs have one width.",
                code="invalid_setting",
                param="gpu_strict_width",
            )
