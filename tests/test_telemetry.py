"""Nothing is told to anybody: ONNX Runtime's own reports are off before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VARIABLE = "ORT_DISABLE_TELEMETRY"

LOADS = """
import os, sys
from pathlib import Path
import {module}
assert os.environ["ORT_DISABLE_TELEMETRY"] == "{expected}"
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1])
assert not list(Path.home().rglob("*deviceid*"))
"""


@pytest.mark.parametrize(
    "module", ["models.providers", "gateway.__main__", "bench.__main__", "export.chain_runner"]
)
def test_no_identifier_is_kept(module: str, tiny_package: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [
            sys.executable,
            *("-c", LOADS.format(module=module, expected="1")),
            str(tiny_package / "target.r1.onnx"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**environment, "HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was written at home"


def test_who_wants_it_has_it(tmp_path: Path) -> None:
    said = "import models, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    done = subprocess.run(
        [sys.executable, "-c", said],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, VARIABLE: "0"},
        check=True,
    )
    assert done.stdout.strip() == "0"
