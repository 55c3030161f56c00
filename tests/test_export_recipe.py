"""The recipe: a package made by other code is not taken for the present one."""

from __future__ import annotations

from pathlib import Path

import pytest

from export import recipe as module
from export.recipe import recipe


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("export/decoder.py", "export/passes/norms.py", "models/package.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    return tmp_path


def test_the_recipe_is_the_same_for_the_same_code(root: Path) -> None:
    assert recipe() == recipe()


@pytest.mark.parametrize(
    "name",
    [
        "export/decoder.py",
        "export/passes/norms.py",
        "models/package.py",
        "export/new.py",
        "export/demo_heads/mtp/model.safetensors",
    ],
)
def test_any_change_of_the_code_changes_the_recipe(name: str, root: Path) -> None:
    before = recipe()
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with (root / name).open("a") as source:
        source.write("\n")
    assert recipe() != before


def test_training_makes_no_package(root: Path) -> None:
    before = recipe()
    path = root / "export" / "training" / "trainer.py"
    path.parent.mkdir()
    path.write_text("# trains\n")
    assert recipe() == before


def test_a_moved_line_between_files_changes_the_recipe(root: Path) -> None:
    before = recipe()
    (root / "export/decoder.py").rename(root / "export/renamed.py")
    assert recipe() != before
