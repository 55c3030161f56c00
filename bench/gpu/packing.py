"""Packs what a machine without a network needs: wheels, in parts that travel.

Every file is cut into parts below `PART_BYTES`; `carried.json` says how they are joined and what
their hashes are. `join.py`, which needs nothing but Python, goes with them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from models.errors import UserError

PART_BYTES = 56 << 20
INDEX = "carried.json"
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(35, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"),
)
"""Those of glibc 2.35 and older: pip takes no name for all of them."""

ONNXRUNTIME = "onnxruntime-gpu>=1.31,<1.33"
NEEDED = (
    "aiohttp>=3.14.5,<4",
    "jinja2>=3.1.6,<4",
    "jsonschema>=4.23,<5",
    "llguidance>=1.8,<2",
    "numpy>=2,<3",
    "onnx>=1.19,<2",
    "orjson>=3.10,<4",
    "pip",
    "prometheus-client>=0.22,<1",
    "rich>=14,<16",
    "tokenizers>=0.22,<0.23",
    "uvloop>=0.21,<1",
)
"""What the gateway and the check import there."""


@dataclass(frozen=True, slots=True)
class PartFile:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Carried:
    """A wheel and the parts that it is joined of."""

    name: str
    bytes: int
    sha256: str
    parts: tuple[PartFile, ...]


def pack(directory: Path, python: str, also: Sequence[str] = ()) -> list[Carried]:
    """Download wheels for `python` on Linux into `directory`, in parts. Raises `UserError`."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        download(Path(scratch), python, [ONNXRUNTIME, *NEEDED, *also])
        carried = [cut(wheel, directory) for wheel in sorted(Path(scratch).glob("*.whl"))]
    write_index(directory, python, carried)
    shutil.copyfile(Path(__file__).with_name("join.py"), directory / "join.py")
    return carried


def download(directory: Path, python: str, names: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp", "--dest", str(directory)]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    done = subprocess.run([*command, *names], capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise UserError(
            f"the wheels cannot be downloaded: {words[-1] if words else 'pip failed'}",
            code="download_failed",
            param="pack",
        )


def cut(file: Path, directory: Path, size: int = PART_BYTES) -> Carried:
    """Write `file` into `directory` in parts of `size` bytes at most."""
    whole, parts = hashlib.sha256(), list[PartFile]()
    with file.open("rb") as stream:
        while content := stream.read(size):
            whole.update(content)
            name = f"{file.name}.{len(parts):03d}"
            (directory / name).write_bytes(content)
            parts.append(PartFile(name, len(content), hashlib.sha256(content).hexdigest()))
    return Carried(file.name, file.stat().st_size, whole.hexdigest(), tuple(parts))


def write_index(directory: Path, python: str, carried: Sequence[Carried]) -> None:
    document = {"python": python, "files": [asdict(each) for each in carried]}
    (directory / INDEX).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
