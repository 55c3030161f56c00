"""API keys: held as digests, compared all alike, read anew when told to."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.settings import Settings
from models.errors import UserError

log = logging.getLogger(__name__)

CREDENTIAL = "api_keys"
"""Name of the systemd credential that holds keys, in the form of a file of them."""

MOST_KEYS = 1000
MOST_BYTES = 1 << 20
OWNER_DIGITS = 12

_Place = TypeVar("_Place")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that is known: its digest, and `owner`, an opaque name of whose it is.

    Keys of one name have one owner: a new key can replace an old one.
    """

    owner: str
    digest: bytes

    @classmethod
    def of(cls, key: str, name: str | None = None) -> ApiKey:
        digest = hashlib.sha256(key.encode(errors="surrogateescape")).digest()
        # Not the digest itself: an owner is shown in the log, and a weak key could be found by it.
        known = f"name:{name}".encode() if name is not None else b"key:" + digest
        return cls(hashlib.sha256(known).hexdigest(), digest)

    @property
    def label(self) -> str:
        """How log and status tell owners apart."""
        return self.owner[:OWNER_DIGITS]


Source = Callable[[], Iterable[ApiKey]]


class KeyRing:
    """The keys that are let in; none at all lets everybody in.

    `source` gives the keys; it is asked again by `reload`, which finds others only where they are
    `from_files`.
    """

    def __init__(self, source: Source, *, from_files: bool = False) -> None:
        self.from_files = from_files
        self._source = source
        self._keys = tuple(source())

    def __len__(self) -> int:
        return len(self._keys)

    def match(self, offered: Iterable[str]) -> ApiKey | None:
        """That of the `offered` which is known. Every pair is compared, so that the time says
        nothing about which key is nearly right."""
        found = None
        for each in offered:
            digest = ApiKey.of(each).digest
            for known in self._keys:
                if hmac.compare_digest(digest, known.digest):
                    found = known
        return found

    def require(self, key: ApiKey | None) -> None:
        """Raise `UserError` where `key`, which let somebody in, is not known any more."""
        if self._keys and (key is None or key not in self._keys):
            raise invalid_key()

    def reload(self, source: Source | None = None) -> None:
        """Where the keys cannot be read, or none are left, those in use stay, and the log says why.
        `source` replaces the one that was asked so far."""
        try:
            keys = tuple((source or self._source)())
        except UserError as error:
            log.error("API keys were not reloaded, those in use stay: %s", error.message)
            return
        if self._keys and not keys:
            # None at all would let everybody in, which nobody means by deleting a line.
            log.error("API keys were not reloaded, those in use stay: there are none any more")
            return
        self._source = source or self._source
        self._keys = keys
        log.info("%d API keys are in use", len(keys))


def key_ring(settings: Settings, environment: Mapping[str, str] | None = None) -> KeyRing:
    """The keys of the settings, of their file, and of the systemd credential.

    Raises `UserError` (`invalid_setting`) that names what is wrong with a file.
    """
    files = key_files(settings, environment or {})
    return KeyRing(key_source(settings, environment or {}), from_files=bool(files))


def key_source(settings: Settings, environment: Mapping[str, str]) -> Source:
    """Gives the keys of the settings and of the files, read whenever it is asked."""
    files = key_files(settings, environment)

    def source() -> Iterator[ApiKey]:
        known = [(key, "api_keys") for key in map(ApiKey.of, settings.api_keys)]
        for path in files:
            known += ((key, f"the file of API keys {path}") for key in read_keys(path))
        _require_one_owner(known)
        return (key for key, _ in known)

    return source


def key_files(settings: Settings, environment: Mapping[str, str]) -> list[Path]:
    """Where keys are read from."""
    return list(_files(settings, environment))


def read_keys(path: Path) -> list[ApiKey]:
    """The keys of a file: one a line, or `name:key`; `#` begins a comment.

    Raises `UserError`: a file without keys is an error, because no keys at all let everybody in.
    """
    try:
        # Reading a pipe or a device may never end, and everybody would wait for it.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise _invalid(path, "is no regular file")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _invalid(path, f"cannot be read: {error.strerror or error}") from None
    if len(raw) > MOST_BYTES:
        raise _invalid(path, f"is larger than {MOST_BYTES >> 20} MiB")
    try:
        lines = raw.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise _invalid(path, "is not text in UTF-8") from None
    numbered = {
        number: _read(path, number, line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.strip().startswith("#")
    }
    keys = list(numbered.values())
    if not keys:
        raise _invalid(path, "has no keys")
    if len(keys) > MOST_KEYS:
        raise _invalid(path, f"has {len(keys)} keys; at most {MOST_KEYS} are read")
    if (twice := _of_two_owners((key, number) for number, key in numbered.items())) is not None:
        lines_of = f"lines {twice[0]} and {twice[1]}"
        raise _invalid(path, f"has in {lines_of} the same key for two names; remove one of them")
    return keys


def invalid_key() -> UserError:
    return UserError("A valid API key is needed.", code="invalid_api_key")


def _files(settings: Settings, environment: Mapping[str, str]) -> Iterator[Path]:
    if settings.api_keys_file is not None:
        yield settings.api_keys_file
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if directory:
        credential = Path(directory) / CREDENTIAL
        if os.path.lexists(credential):
            yield credential


def _require_one_owner(known: Iterable[tuple[ApiKey, str]]) -> None:
    if (places := _of_two_owners(known)) is not None:
        raise UserError(
            f"{places[0]} and {places[1]} have the same key for two names; remove it from one.",
            code="invalid_setting",
            param="api_keys",
        )


def _of_two_owners(known: Iterable[tuple[ApiKey, _Place]]) -> tuple[_Place, _Place] | None:
    """Where a key was given to two owners first, None where none was: whose it is would not be
    clear. A key without a name is its own owner."""
    first: dict[bytes, tuple[ApiKey, _Place]] = {}
    for key, place in known:
        other, before = first.setdefault(key.digest, (key, place))
        if other.owner != key.owner:
            return before, place
    return None


def _read(path: Path, number: int, line: str) -> ApiKey:
    name, colon, key = line.partition(":")
    name, key = (name.strip(), key.strip()) if colon else ("", line)
    if colon and not name:
        raise _invalid(path, f"has no name before the colon in line {number}")
    if not key:
        raise _invalid(path, f"has no key in line {number}")
    if not key.isprintable() or " " in key:
        raise _invalid(path, f"has in line {number} a key that no client could send")
    return ApiKey.of(key, name or None)


def _invalid(path: Path, problem: str) -> UserError:
    # Never what the line says: it may be a key.
    return UserError(
        f"the file of API keys {path} {problem}.", code="invalid_setting", param="api_keys_file"
    )
