"""Joins carried parts, checks them, installs them, and runs the check: Python alone is needed.

    python3 join.py PARTS VENV [arguments of `python -m bench gpu` ...]

Run in the project's directory. Parts are those of `python -m bench gpu --pack`. Nothing is fetched.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

INDEX = "carried.json"


class DamagedError(Exception):
    """Something that was carried is not what was packed."""


def join(parts: Path, wheels: Path) -> list[Path]:
    """Write the wheels whose parts lie in `parts` to `wheels`. Raises `DamagedError`."""
    document = json.loads((parts / INDEX).read_text(encoding="utf-8"))
    wheels.mkdir(parents=True, exist_ok=True)
    return [_joined(parts, wheels, each) for each in document["files"]]


def _joined(parts: Path, wheels: Path, file: dict[str, Any]) -> Path:
    whole, path = hashlib.sha256(), wheels / Path(file["name"]).name
    if path.is_file() and path.stat().st_size == file["bytes"]:
        with path.open("rb") as known:
            if hashlib.file_digest(known, "sha256").hexdigest() == file["sha256"]:
                return path
    with path.open("wb") as stream:
        for part in file["parts"]:
            content = _content(parts, part)
            whole.update(content)
            stream.write(content)
    if whole.hexdigest() != file["sha256"]:
        path.unlink()
        raise DamagedError(
            f"{file['name']} is not what was packed: its parts are of several packings"
        )
    return path


def _content(parts: Path, part: dict[str, Any]) -> bytes:
    path = parts / Path(part["name"]).name
    if not path.is_file():
        raise DamagedError(f"{part['name']} is missing: carry it again")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != part["sha256"]:
        raise DamagedError(f"{part['name']} was damaged on its way: carry it again")
    return content


def install(wheels: Path, venv: Path) -> Path:
    """The Python of a virtual environment with all wheels, made without a network."""
    python = venv / "bin" / "python"
    if not python.exists():
        # Some systems' Python has no ensurepip: pip runs from its own wheel.
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = next(iter(sorted(wheels.glob("pip-*.whl"))), None)
    if pip is None:
        raise DamagedError("the wheel of pip is missing")
    names = [str(each) for each in sorted(wheels.glob("*.whl")) if each != pip]
    command = [str(python), f"{pip}/pip", "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*command, *names], check=True)
    return python


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    parts, venv = Path(arguments[0]), Path(arguments[1])
    try:
        join(parts, venv.parent / "wheels")
        python = install(venv.parent / "wheels", venv)
    except (DamagedError, OSError, subprocess.CalledProcessError) as error:
        print(f"join: {error}", file=sys.stderr)
        return 1
    command = [str(python), "-m", "bench", "gpu", *arguments[2:]]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
