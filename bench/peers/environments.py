"""Virtual environments of peers, made once and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.peers.catalogue import Peer
from bench.peers.contestants import PeerError
from bench.run.schema import Absent
from bench.setup import progress
from models.locations import cache_directory

_MADE = "made.json"
_INSTALL_SECONDS = 3600


def python_of(peer: Peer) -> Path:
    """The Python of the peer's environment, which is made where there is none for exactly these
    requirements. Raises `PeerError` where they cannot be installed."""
    key = json.dumps([sys.version_info[:2], peer.requirements, peer.without])
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    directory = cache_directory() / "peers" / "environments" / f"{peer.adapter}-{digest}"
    python = directory / "bin" / "python"
    if not (directory / _MADE).is_file():
        progress(f"peers: installing {peer.name}: {', '.join(peer.requirements)}")
        shutil.rmtree(directory, ignore_errors=True)
        venv.create(directory, with_pip=True)
        _pip(peer, python, "install", *peer.requirements)
        if peer.without:
            _pip(peer, python, "uninstall", "--yes", *peer.without)
        (directory / _MADE).write_text(key, encoding="utf-8")
    return python


def _pip(peer: Peer, python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _failed(peer, f"no end within {_INSTALL_SECONDS} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise _failed(peer, lines[-1] if lines else f"status {done.returncode}")


def _failed(peer: Peer, why: str) -> PeerError:
    return PeerError(Absent("failed", f"{peer.name} could not be installed: {why}"))
