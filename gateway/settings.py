"""Everything that a gateway can be told, and what of it is refused.

Where it is told is `gateway.settings_sources`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from gateway.engine.names import JOIN, NGRAM, OFF, is_name
from gateway.engine.options import EngineOptions
from gateway.engine.requests import (
    LEAST_TPOT_MS,
    MOST_TPOT_MS,
    POLICY_NAMES,
    Pacing,
    Speculation,
    named_policy,
    needed_by_policy,
)
from gateway.fleet.terms import Terms
from gateway.limits import DEEPEST, Limits
from models.errors import UserError
from models.locations import default_package_path
from models.package import DRAFTER_KINDS
from models.providers import DEVICES, GEMMS

SECRET = frozenset({"api_keys"})
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")
HOST = re.compile(r"[a-z0-9_.-]+|\[[0-9a-f:.]+\]")
DRAFTERS = (
    f"one of auto, cascade, off, {NGRAM}, {', '.join(DRAFTER_KINDS)}, or several of those joined"
    f" by {JOIN}"
)
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_DRAFT_LENGTH = 31
DEFAULT_POLICIES = tuple(name for name in POLICY_NAMES if name != "adasd")
"""`adasd` is lossy: that is never a default, but asked for in a request."""

TABLES: Mapping[str, str] = MappingProxyType({"speculation_": "speculation", "limits_": "limits"})
"""Settings that a file has in a table of their own, by the prefix of their names."""

_ENGINE = EngineOptions()
_SPECULATION = Speculation()
_LIMITS = Limits()
_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a gateway can be told.

    `speculation_length` None leaves the length to the policy; `speculation_tpot_ms` is the target
    of the policy `slo`. `queue_seconds` bounds the wait for a slot, `request_seconds` a whole
    request (None: no end). `drain_seconds` is how long running answers may go on after a request to
    stop; `keep_seconds` how long a finished response can be had again. `insecure` allows an address
    beyond this machine without keys. `temperature` is that of requests that name none (None: they
    are sampled as the package advises). `package` is the default one, or a directory of packages;
    `packages` are further ones. What nobody used for `keep_alive` is unloaded (negative: nothing
    is); `load_seconds` bounds the wait for a package, `stuck_seconds` a run of the device. `admins`
    are the names of the keys that may load and unload. Without `check_memory` what is loaded need
    not seem to fit.
    """

    package: Path = field(default_factory=default_package_path)
    packages: tuple[Path, ...] = ()
    keep_alive: float = _TERMS.keep_alive
    load_seconds: float = _TERMS.load_seconds
    stuck_seconds: float | None = _TERMS.stuck_seconds
    stuck_exit_seconds: float = _TERMS.stuck_exit_seconds
    admins: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8765
    device: str = "auto"
    slots: int = _ENGINE.slots
    threads: int | None = None
    context: int | None = None
    queue: int = _ENGINE.queue
    queue_seconds: float | None = _ENGINE.queue_seconds
    request_seconds: float | None = 1800.0
    prefill_chunk: int = _ENGINE.prefill_chunk
    busy_chunk: int = _ENGINE.busy_chunk
    trees: bool = _ENGINE.trees
    share_prefixes: bool = _ENGINE.share_prefixes
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    api_keys_file: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    insecure: bool = False
    log_level: str = "info"
    log_format: str = "text"
    drain_seconds: float = 20.0
    keep_seconds: float = 600.0
    temperature: float | None = None
    speculation_drafter: str = _SPECULATION.drafter
    speculation_policy: str = _SPECULATION.policy
    speculation_length: int | None = None
    speculation_tpot_ms: float | None = None
    speculation_pacing: str = _SPECULATION.pacing
    ngram_store: Path | None = None
    ngram_store_mib: int = _ENGINE.ngram_store_mib
    check_memory: bool = _TERMS.check_memory
    gpu_memory_mib: int | None = None
    gpu_graphs: bool = _ENGINE.gpu_graphs
    gpu_strict_width: int | None = None
    gpu_gemm: str = _ENGINE.gpu_gemm
    gpu_share_weights: bool = _ENGINE.gpu_share_weights
    limits_connections: int = _LIMITS.connections
    limits_message_bytes: int = _LIMITS.message_bytes
    limits_header_bytes: int = _LIMITS.header_bytes
    limits_headers: int = _LIMITS.headers
    limits_nesting: int = _LIMITS.nesting
    limits_schema_bytes: int = _LIMITS.schema_bytes
    limits_schema_nesting: int = _LIMITS.schema_nesting
    limits_output_tokens: int | None = _LIMITS.output_tokens
    limits_requests: int | None = _LIMITS.requests
    limits_requests_per_minute: int | None = _LIMITS.requests_per_minute
    limits_tokens_per_minute: int | None = _LIMITS.tokens_per_minute

    def __post_init__(self) -> None:
        _in_range(self)
        _one_of("device", self.device, DEVICES)
        _one_of("gpu_gemm", self.gpu_gemm, GEMMS)
        if self.gpu_strict_width is not None and not self.gpu_graphs:
            raise invalid("gpu_strict_width", "needs gpu_graphs: only captured runs have one width")
        _one_of("log_level", self.log_level, LOG_LEVELS)
        _one_of("log_format", self.log_format, LOG_FORMATS)
        if self.tls_key is not None and self.tls_certificate is None:
            raise invalid("tls_key", "needs tls_certificate")
        if not is_name(self.speculation_drafter):
            raise invalid(
                "speculation.drafter",
                f"must be {DRAFTERS}, not {self.speculation_drafter!r}",
            )
        _one_of("speculation.policy", self.speculation_policy, DEFAULT_POLICIES)
        _one_of("speculation.pacing", self.speculation_pacing, get_args(Pacing))
        for policy, needed in needed_by_policy(self.speculation):
            raise invalid(f"speculation.{needed}", f"is needed with the policy {policy!r}")
        if not all(self.api_keys):
            raise invalid("api_keys", "has an empty key")
        if not all(key.isprintable() for key in self.api_keys):
            raise invalid("api_keys", "has a key that no client could send: unprintable text")
        for origin in self.allowed_origins:
            if not ORIGIN.fullmatch(origin):
                raise invalid(
                    "allowed_origins", f"must hold origins like https://host:port, not {origin!r}"
                )
        for host in self.allowed_hosts:
            if not HOST.fullmatch(host):
                raise invalid(
                    "allowed_hosts", f"must hold names in lower case without a port, not {host!r}"
                )

    @property
    def speculation(self) -> Speculation:
        return Speculation(
            drafter=self.speculation_drafter,
            policy=named_policy(self.speculation_policy),
            length=self.speculation_length,
            tpot_ms=self.speculation_tpot_ms,
            pacing="even" if self.speculation_pacing == "even" else "none",
        )

    @property
    def limits(self) -> Limits:
        names = (item.name for item in dataclasses.fields(Limits))
        return Limits(**{name: getattr(self, f"limits_{name}") for name in names})

    @property
    def terms(self) -> Terms:
        return Terms(
            keep_alive=self.keep_alive,
            load_seconds=self.load_seconds,
            queue=self.queue,
            drain_seconds=self.drain_seconds,
            stuck_seconds=self.stuck_seconds,
            stuck_exit_seconds=self.stuck_exit_seconds,
            check_memory=self.check_memory,
        )

    @property
    def engine_options(self) -> EngineOptions:
        return EngineOptions(
            device=self.device,
            slots=self.slots,
            threads=self.threads,
            context=self.context,
            queue=self.queue,
            queue_seconds=self.queue_seconds,
            prefill_chunk=self.prefill_chunk,
            busy_chunk=self.busy_chunk,
            trees=self.trees,
            ngram_store=self.ngram_store,
            ngram_store_mib=self.ngram_store_mib,
            share_prefixes=self.share_prefixes,
            check_memory=self.check_memory,
            check_parts=self.check_memory,
            gpu_memory_mib=self.gpu_memory_mib,
            gpu_graphs=self.gpu_graphs,
            gpu_strict_width=self.gpu_strict_width,
            gpu_gemm=self.gpu_gemm,
            gpu_share_weights=self.gpu_share_weights,
            drafter=OFF if self.speculation_policy == "off" else self.speculation_drafter,
        )


def written(name: str) -> str:
    """The key as a file writes it."""
    for prefix, table in TABLES.items():
        if name.startswith(prefix):
            return f"{table}.{name.removeprefix(prefix)}"
    return name


def _in_range(settings: Settings) -> None:
    for name, least, most in (
        ("port", 0, 65535),
        ("slots", 1, 64),
        ("queue", 0, 100_000),
        ("queue_seconds", 0, 86_400),
        ("request_seconds", 0.1, 604_800),
        ("threads", 1, 1024),
        ("context", 16, 1 << 24),
        ("prefill_chunk", 2, 1 << 16),
        ("busy_chunk", 2, 1 << 16),
        ("ngram_store_mib", 1, 1 << 20),
        ("gpu_memory_mib", 64, 1 << 20),
        ("gpu_strict_width", 2, 16),
        ("drain_seconds", 0, 3600),
        ("keep_seconds", 0, 86_400),
        ("keep_alive", -1, 31_536_000),
        ("load_seconds", 0, 86_400),
        ("stuck_seconds", 1, 86_400),
        ("stuck_exit_seconds", 0, 86_400),
        ("temperature", 0, 2),
        ("speculation_length", 1, MAX_DRAFT_LENGTH),
        ("speculation_tpot_ms", LEAST_TPOT_MS, MOST_TPOT_MS),
        ("limits_connections", 1, 1 << 20),
        ("limits_message_bytes", 1024, 1 << 30),
        ("limits_header_bytes", 1024, 1 << 20),
        ("limits_headers", 16, 10_000),
        ("limits_nesting", 8, DEEPEST),
        ("limits_schema_bytes", 2, 1 << 24),
        ("limits_schema_nesting", 1, DEEPEST),
        ("limits_output_tokens", 1, 1 << 24),
        ("limits_requests", 1, 1 << 20),
        ("limits_requests_per_minute", 1, 1 << 30),
        ("limits_tokens_per_minute", 1, 1 << 40),
    ):
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            raise invalid(written(name), f"must be from {least} to {most}, not {value}")


def _one_of(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise invalid(name, f"must be one of {', '.join(known)}, not {value!r}")


def invalid(where: str, problem: str) -> UserError:
    return UserError(f"{where} {problem}.", code="invalid_setting", param=where)


def flag_fields() -> tuple[str, ...]:
    """Settings with a flag; secrets have none, because other users can read a command line."""
    return tuple(item.name for item in dataclasses.fields(Settings) if item.name not in SECRET)
