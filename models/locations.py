"""Where things live on this machine. Imports nothing heavy: every command line asks here."""

from __future__ import annotations

import os
from pathlib import Path

DEMO_NAME = "smollm2-135m-instruct"


def cache_directory() -> Path:
    """`$OUTPACE_CACHE`, or `~/.cache/outpace`. Not created here."""
    configured = os.environ.get("OUTPACE_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "outpace"


def default_package_path() -> Path:
    """The package every command uses when no `--package` is given: the demo's."""
    return cache_directory() / "packages" / DEMO_NAME
