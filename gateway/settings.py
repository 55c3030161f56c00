"""Settings: a TOML file, then the environment (`OUTPACE_*`), then flags. The last one wins.

An unknown key is an error that names the nearest known one; a value of the wrong type or out of
range is an error that names the key and where it came from.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

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
from models.errors import UserError
from models.locations import default_package_path
from models.package import DRAFTER_KINDS
from models.providers import DEVICES

PREFIX = "OUTPACE_"
# Read by others: the cache's place, this file's place, and the key and address a client uses.
RESERVED = frozenset({"OUTPACE_CACHE", "OUTPACE_CONFIG", "OUTPACE_API_KEY", "OUTPACE_URL"})
SECRET = frozenset({"api_keys"})
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")
DRAFTERS = (
    f"one of auto, cascade, off, {NGRAM}, {', '.join(DRAFTER_KINDS)}, or several of those joined"
    f" by {JOIN}"
)
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_DRAFT_LENGTH = 31
DEFAULT_POLICIES = tuple(name for name in POLICY_NAMES if name != "adasd")
"""`adasd` is lossy: that is never a default, but asked for in a request."""

SPECULATION_PREFIX = "speculation_"
_ENGINE = EngineOptions()
_SPECULATION = Speculation()


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a gateway can be told.

    `speculation_length` None leaves the length to the policy; `speculation_tpot_ms` is the target
    of the policy `slo`. `drain_seconds` is how long running
    answers may go on after a request to stop. `insecure` allows an address beyond this machine
    without keys. `temperature` is that of requests that name none.
    """

    package: Path = field(default_factory=default_package_path)
    host: str = "127.0.0.1"
    port: int = 8765
    device: str = "auto"
    slots: int = _ENGINE.slots
    threads: int | None = None
    context: int | None = None
    queue: int = _ENGINE.queue
    prefill_chunk: int = _ENGINE.prefill_chunk
    busy_chunk: int = _ENGINE.busy_chunk
    trees: bool = _ENGINE.trees
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    allowed_origins: tuple[str, ...] = ()
    insecure: bool = False
    log_level: str = "info"
    drain_seconds: float = 20.0
    temperature: float = 0.0
    speculation_drafter: str = _SPECULATION.drafter
    speculation_policy: str = _SPECULATION.policy
    speculation_length: int | None = None
    speculation_tpot_ms: float | None = None
    speculation_pacing: str = _SPECULATION.pacing
    ngram_store: Path | None = None
    ngram_store_mib: int = _ENGINE.ngram_store_mib

    def __post_init__(self) -> None:
        _in_range(self)
        _one_of("device", self.device, DEVICES)
        _one_of("log_level", self.log_level, LOG_LEVELS)
        if not is_name(self.speculation_drafter):
            raise _invalid(
                "speculation.drafter",
                f"must be {DRAFTERS}, not {self.speculation_drafter!r}",
            )
        _one_of("speculation.policy", self.speculation_policy, DEFAULT_POLICIES)
        _one_of("speculation.pacing", self.speculation_pacing, get_args(Pacing))
        for policy, needed in needed_by_policy(self.speculation):
            raise _invalid(f"speculation.{needed}", f"is needed with the policy {policy!r}")
        if not all(self.api_keys):
            raise _invalid("api_keys", "has an empty key")
        if not all(key.isprintable() for key in self.api_keys):
            raise _invalid("api_keys", "has a key that no client could send: unprintable text")
        for origin in self.allowed_origins:
            if not ORIGIN.fullmatch(origin):
                raise _invalid(
                    "allowed_origins", f"must hold origins like https://host:port, not {origin!r}"
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
    def engine_options(self) -> EngineOptions:
        return EngineOptions(
            device=self.device,
            slots=self.slots,
            threads=self.threads,
            context=self.context,
            queue=self.queue,
            prefill_chunk=self.prefill_chunk,
            busy_chunk=self.busy_chunk,
            trees=self.trees,
            ngram_store=self.ngram_store,
            ngram_store_mib=self.ngram_store_mib,
            drafter=OFF if self.speculation_policy == "off" else self.speculation_drafter,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A value, and what to call the place where it was set."""

    value: Any
    where: str


KINDS: Mapping[str, Any] = types.MappingProxyType(typing.get_type_hints(Settings))


def load_settings(
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    config: Path | None = None,
) -> Settings:
    """The settings of all three sources. `flags` are texts by field name.

    `config` is the file named by a flag; otherwise `$OUTPACE_CONFIG` names it, otherwise there is
    none. Raises `UserError` `invalid_setting`, `unknown_setting` or `config_unreadable`.
    """
    named = environment.get("OUTPACE_CONFIG")
    path = config or (Path(named) if named else None)
    path = None if path is None else _expanded(path, "config")
    found = {} if path is None else _from_file(path)
    found |= _from_environment(environment)
    for name, text in flags.items():
        found[name] = _found_text(name, text, "--" + name.replace("_", "-"))
    try:
        return Settings(**{name: each.value for name, each in found.items()})
    except UserError as error:
        raise _with_origin(error, found) from None


def _with_origin(error: UserError, found: Mapping[str, Found]) -> UserError:
    """What `Settings` says of a value, said of the variable, flag or line that set it."""
    for name, each in found.items():
        if _written(name) == error.param:
            problem = error.message.removeprefix(error.param)
            return UserError(each.where + problem, code=error.code, param=each.where)
    return error


def _from_file(path: Path) -> dict[str, Found]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _unreadable(f"cannot read {path}: it is not text in UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _unreadable(f"{path} is not valid TOML: {error}") from None
    flat = dict(_flattened(document, path))
    return {name: _found_in_toml(name, value, path) for name, value in flat.items()}


def _unreadable(problem: str) -> UserError:
    return UserError(problem + ".", code="config_unreadable", param="config")


def _flattened(document: Mapping[str, Any], path: Path) -> Iterable[tuple[str, Any]]:
    written = {_written(name): name for name in KINDS}
    for key, value in document.items():
        if key == "speculation" and isinstance(value, dict):
            for member, inner in value.items():
                yield _known(f"speculation.{member}", written, str(path)), inner
        else:
            yield _known(key, written, str(path)), value


def _from_environment(environment: Mapping[str, str]) -> dict[str, Found]:
    known = {PREFIX + name.upper(): name for name in KINDS}
    values = {}
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable not in RESERVED:
            name = _known(variable, known, "the environment")
            values[name] = _found_text(name, text, variable)
    return values


def _known(key: str, known: Mapping[str, str], where: str) -> str:
    if key in known:
        return known[key]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    raise UserError(
        f"{where}: unknown setting {key!r}. Did you mean {near[0]!r}?",
        code="unknown_setting",
        param=key,
    )


def _found_text(name: str, text: str, where: str) -> Found:
    return Found(_from_text(name, text, where), where)


def _from_text(name: str, text: str, where: str) -> Any:
    """A value as an environment variable or a flag writes it; lists are separated by commas."""
    kind, optional = _plain(KINDS[name])
    if optional and text.lower() in ("", "none", "auto"):
        return None
    if kind is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is bool:
        if text.lower() not in ("1", "0", "true", "false", "yes", "no"):
            raise _invalid(where, f"must be true or false, not {text!r}")
        return text.lower() in ("1", "true", "yes")
    if kind is Path:
        return _expanded(Path(text), where)
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise _invalid(where, f"must be {noun}, not {text!r}") from None


def _found_in_toml(name: str, value: Any, path: Path) -> Found:
    where = f"{path}: {_written(name)}"
    return Found(_from_toml(name, value, path, where), where)


def _from_toml(name: str, value: Any, path: Path, where: str) -> Any:
    kind, _ = _plain(KINDS[name])
    if kind is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _invalid(where, "must be an array of strings")
        return tuple(value)
    if kind is Path and isinstance(value, str):
        # Relative to the file, so that a package beside it is found from anywhere.
        return path.absolute().parent / _expanded(Path(value), where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        noun = "string" if kind is Path else kind.__name__
        raise _invalid(where, f"must be of type {noun}, not {type(value).__name__}")
    return value


def _expanded(path: Path, where: str) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise _invalid(where, f"names the home of a user who is not known here: {path}") from None


def _plain(kind: Any) -> tuple[type, bool]:
    """The type without `| None`, and whether it had it."""
    members = [member for member in get_args(kind) if member is not types.NoneType]
    if isinstance(kind, types.UnionType):
        return members[0], True
    return typing.get_origin(kind) or kind, False


def _written(name: str) -> str:
    """The key as a file writes it."""
    if name.startswith(SPECULATION_PREFIX):
        return "speculation." + name.removeprefix(SPECULATION_PREFIX)
    return name


def _in_range(settings: Settings) -> None:
    for name, least, most in (
        ("port", 0, 65535),
        ("slots", 1, 64),
        ("queue", 0, 100_000),
        ("threads", 1, 1024),
        ("context", 16, 1 << 24),
        ("prefill_chunk", 2, 1 << 16),
        ("busy_chunk", 2, 1 << 16),
        ("ngram_store_mib", 1, 1 << 20),
        ("drain_seconds", 0, 3600),
        ("temperature", 0, 2),
        ("speculation_length", 1, MAX_DRAFT_LENGTH),
        ("speculation_tpot_ms", LEAST_TPOT_MS, MOST_TPOT_MS),
    ):
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            raise _invalid(_written(name), f"must be from {least} to {most}, not {value}")


def _one_of(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise _invalid(name, f"must be one of {', '.join(known)}, not {value!r}")


def _invalid(where: str, problem: str) -> UserError:
    return UserError(f"{where} {problem}.", code="invalid_setting", param=where)


def flag_fields() -> tuple[str, ...]:
    """Settings with a flag; secrets have none, because other users can read a command line."""
    return tuple(item.name for item in dataclasses.fields(Settings) if item.name not in SECRET)
