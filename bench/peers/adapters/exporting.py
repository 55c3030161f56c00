"""Runs a peer's own exporter."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def export(command: Sequence[str]) -> None:
    """Raises `RuntimeError` with the command's last words where it fails."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise RuntimeError(f"exporting failed: {' / '.join(lines[-2:])}")
