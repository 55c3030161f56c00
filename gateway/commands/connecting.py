"""Which running gateway a command speaks to, and with which key."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from models.errors import UserError

DEFAULT_URL = "http://127.0.0.1:8765"
_MOST_BYTES = 1 << 20


def add_gateway(parser: argparse.ArgumentParser) -> None:
    """The key itself has no flag: other users can read a command line."""
    parser.add_argument(
        "--url",
        default=os.environ.get("OUTPACE_URL", DEFAULT_URL),
        help=f"the gateway (default: $OUTPACE_URL, else {DEFAULT_URL})",
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file whose first key is used (default: the key in $OUTPACE_API_KEY, else the file"
        " $OUTPACE_API_KEY_FILE)",
    )


def api_key(parsed: argparse.Namespace) -> str | None:
    """That of the file of `--api-key-file`, of the environment, or of the file that it names; None:
    there is none. Raises `UserError` for a file without a key."""
    if parsed.api_key_file is not None:
        return first_key(parsed.api_key_file)
    if key := os.environ.get("OUTPACE_API_KEY"):
        return key
    named = os.environ.get("OUTPACE_API_KEY_FILE")
    return first_key(Path(named)) if named else None


def first_key(path: Path) -> str:
    """The first key of a file: a key, or `name:key`, a line, as a gateway reads them.

    Raises `UserError` that says why there is none.
    """
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError as error:
        raise _no_key(path, f"cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, RuntimeError):
        raise _no_key(path, "is not text in UTF-8, or names a home that is not known") from None
    for line in map(str.strip, lines):
        if line and not line.startswith("#"):
            name, colon, key = line.partition(":")
            return key.strip() if colon else name
    raise _no_key(path, "has no key")


def _no_key(path: Path, problem: str) -> UserError:
    return UserError(
        f"the file of the API key {path} {problem}.", code="invalid_setting", param="api_key_file"
    )
