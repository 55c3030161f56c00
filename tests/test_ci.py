"""`.ci/run`: what it returns, what it says last, and where pictures are kept."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKE = """#!/bin/sh
echo "make $*"
touch "$OUTPACE_ARTEFACTS/one.png" "$OUTPACE_ARTEFACTS/two.png"
echo "1 failed, 2 passed in 3.00s"
exit $MADE
"""


def checked(place: Path, make: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run with `make` in the place of make; pictures go to `pictures` in `place`."""
    program = place / "bin" / "make"
    program.parent.mkdir()
    program.write_text(make)
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    kept = {"OUTPACE_ARTEFACTS": str(place / "pictures"), "PATH": path}
    return subprocess.run(
        [str(ROOT / ".ci" / "run")],
        env={**os.environ, **kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("status", [0, 2])
def test_it_ends_as_the_tests_did_and_says_where_the_pictures_are(
    tmp_path: Path, status: int
) -> None:
    done = checked(tmp_path, MAKE, MADE=str(status))
    assert done.returncode == status
    assert done.stdout.splitlines()[0].startswith("make test PYTHON=")
    assert done.stdout.splitlines()[-2:] == [
        "1 failed, 2 passed in 3.00s",
        f"2 pictures of the page are in {tmp_path / 'pictures'}",
    ]


def test_pictures_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "mine.png").touch()
    done = checked(tmp_path, MAKE, MADE="0")
    assert done.stdout.splitlines()[-1].startswith("3 pictures")


def test_without_a_python_it_fails(tmp_path: Path) -> None:
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OUTPACE_ARTEFACTS": str(tmp_path / "pictures")}
    environment.pop("PYTHON", None)
    done = subprocess.run(
        [str(ROOT / ".ci" / "run")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Outpace needs Python 3.11 or newer" in done.stderr
