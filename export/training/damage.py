"""Files of a working directory that cannot be gone on with: said by name, with what helps."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.errors import UserError

_UNREADABLE = (
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def explained(path: Path, remedy: str) -> Iterator[None]:
    """Reading `path`, with what the readers of numpy and torch raise where it is not whole.

    Raises `UserError` (`work_damaged`) that ends with `remedy`.
    """
    try:
        yield
    except _UNREADABLE as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        lacking = "it has no " if isinstance(error, KeyError) else ""
        raise damaged(path, lacking + lines[0].rstrip(". :"), remedy) from error


def damaged(path: Path, problem: str, remedy: str) -> UserError:
    return UserError(
        f"{path} cannot be used ({problem}): {remedy}.", code="work_damaged", param="--work"
    )
