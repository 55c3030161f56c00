"""Where settings come from: a TOML file, then the environment (`OUTPACE_*`), then flags.

The last one wins. An unknown key is an error that names the nearest known one; a value of the wrong
type or out of range is an error that names the key and where it came from.
"""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gateway.settings import TABLES, Settings, invalid, written
from models.errors import UserError

PREFIX = "OUTPACE_"
# Read by others: the cache's place, this file's place, the address and the key a client uses, and
# what the tests are told.
RESERVED = frozenset(
    {
        *("OUTPACE_CACHE", "OUTPACE_CONFIG"),
        *("OUTPACE_URL", "OUTPACE_API_KEY", "OUTPACE_API_KEY_FILE"),
        *("OUTPACE_ARTEFACTS", "OUTPACE_CHROMIUM", "OUTPACE_FUZZ"),
    }
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
        if written(name) == error.param:
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
    names = {written(name): name for name in KINDS}
    for key, value in document.items():
        if key in TABLES.values() and isinstance(value, dict):
            for member, inner in value.items():
                yield _known(f"{key}.{member}", names, str(path)), inner
        else:
            yield _known(key, names, str(path)), value


def _from_environment(environment: Mapping[str, str]) -> dict[str, Found]:
    known = {PREFIX + name.upper(): name for name in KINDS}
    check_environment(environment)
    return {
        known[variable]: _found_text(known[variable], text, variable)
        for variable, text in environment.items()
        if variable in known
    }


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise `UserError` (`unknown_setting`) for a variable of ours that nobody reads."""
    known = {name: name for name in (*(PREFIX + name.upper() for name in KINDS), *RESERVED)}
    for variable in environment:
        if variable.startswith(PREFIX):
            _known(variable, known, "the environment")


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
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return tuple(_expanded(Path(part), where) if _of_paths(name) else part for part in parts)
    if kind is bool:
        if text.lower() not in ("1", "0", "true", "false", "yes", "no"):
            raise invalid(where, f"must be true or false, not {text!r}")
        return text.lower() in ("1", "true", "yes")
    if kind is Path:
        return _expanded(Path(text), where)
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise invalid(where, f"must be {noun}, not {text!r}") from None


def _found_in_toml(name: str, value: Any, path: Path) -> Found:
    where = f"{path}: {written(name)}"
    return Found(_from_toml(name, value, path, where), where)


def _from_toml(name: str, value: Any, path: Path, where: str) -> Any:
    kind, optional = _plain(KINDS[name])
    if optional and value == "none":
        return None
    if kind is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise invalid(where, "must be an array of strings")
        if _of_paths(name):
            beside = path.absolute().parent
            return tuple(beside / _expanded(Path(item), where) for item in value)
        return tuple(value)
    if kind is Path and isinstance(value, str):
        # Relative to the file, so that a package beside it is found from anywhere.
        return path.absolute().parent / _expanded(Path(value), where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        noun = "string" if kind is Path else kind.__name__
        raise invalid(where, f"must be of type {noun}, not {type(value).__name__}")
    return value


def _expanded(path: Path, where: str) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise invalid(where, f"names the home of a user who is not known here: {path}") from None


def _of_paths(name: str) -> bool:
    return Path in get_args(KINDS[name])


def _plain(kind: Any) -> tuple[type, bool]:
    """The type without `| None`, and whether it had it."""
    members = [member for member in get_args(kind) if member is not types.NoneType]
    if isinstance(kind, types.UnionType):
        return members[0], True
    return typing.get_origin(kind) or kind, False
