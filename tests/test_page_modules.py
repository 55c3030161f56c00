"""The page's modules that touch no document, under node's own test runner.

Playwright brings a node with it: no other one is needed.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import playwright
import pytest

from tests.browser_support import PICTURES

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "gateway" / "page"
SUITES = sorted((ROOT / "tests" / "page").glob("*.test.mjs"))
NODE = Path(playwright.__file__).parent / "driver" / "node"


def node(*arguments: str) -> str:
    done = subprocess.run(
        [str(NODE), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        pytest.fail(f"node {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.name)
def test_modules(suite: Path) -> None:
    told = node("--test-reporter=tap", str(suite))
    assert "\n# fail 0\n" in told
    assert "\n# skipped 0\n" in told


@pytest.mark.parametrize("module", sorted(PAGE.glob("*.js")), ids=lambda path: path.name)
def test_every_module_can_be_read(module: Path) -> None:
    node("--check", str(module))


def test_every_picture_is_taken_by_some_test() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").glob("test_page_*.py"))
    taken = set(re.findall(r"picture\(\"([a-z-]+)\"\)", sources))
    assert taken | {"light", "dark"} == PICTURES
    assert "picture(scheme)" in sources


def test_files_are_of_a_size_to_read() -> None:
    read = [path for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".html")]
    lengths = {path.name: len(path.read_text().splitlines()) for path in read}
    assert len(lengths) > 30
    assert max(lengths.values()) < 300, max(lengths, key=lengths.__getitem__)
