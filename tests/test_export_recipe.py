"""The recipe: a package made by other code is not taken for the present one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from export import recipe as module
from export.recipe import changed_parts, code_of, recipe


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
        source.write("more = 1\n")
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


def test_what_is_said_to_people_makes_no_package(root: Path) -> None:
    before = recipe()
    path = root / "export/decoder.py"
    path.write_text('"""Says what it is."""\n\n# Why it is so.\n')
    assert recipe() == before
    path.write_text("import os  # needed\n")
    used = recipe()
    path.write_text('"""Of two\n\nlines."""\n\nimport os\n\n\n# The end.\n')
    assert recipe() == used != before


def test_code_is_what_is_left_without_prose() -> None:
    source = (
        '"""A module."""\n\nNAME = "x # y"  # a name\n"""What it is."""\n\n\n'
        'def named(\n    text: str,\n\n    # why\n) -> str:\n    """Grüße."""\n'
        '    return f"""{text}\n\n    # no comment\n    """\n'
    )
    assert code_of(source) == (
        'NAME = "x # y"\ndef named(\n    text: str,\n) -> str:\n'
        '    return f"""{text}\n\n    # no comment\n    """\n'
    )


def test_notes_of_a_head_make_no_package(root: Path) -> None:
    head = root / "export/demo_heads/mtp"
    head.mkdir(parents=True)
    config = {"vocab_size": 7, "training": {"minutes": 1}}
    (head / "config.json").write_text(json.dumps(config))
    before = recipe()
    (head / "report.json").write_text("{}")
    (head / "report.txt").write_text("good")
    config["training"] = {"minutes": 2, "note": "again"}
    (head / "config.json").write_text(json.dumps(config, indent=1))
    assert recipe() == before
    (head / "config.json").write_text(json.dumps(config | {"vocab_size": 8}))
    assert changed_parts(before, recipe()) == ["export/demo_heads/mtp has changed"]


def test_what_changed_is_named(root: Path) -> None:
    before = recipe()
    assert changed_parts(before, before) == []
    (root / "export/passes/norms.py").write_text("x = 1\n")
    (root / "models/package.py").write_text("y = 1\n")
    (root / "export/heads").mkdir()
    (root / "export/heads/new.py").write_text("z = 1\n")
    assert changed_parts(before, recipe()) == [
        "export/heads has changed",
        "export/passes has changed",
        "models/package.py has changed",
    ]


@pytest.mark.parametrize("before", ["", "0" * 64])
def test_a_recipe_of_another_form_is_told_so(before: str, root: Path) -> None:
    (told,) = changed_parts(before, recipe())
    assert "tells its parts apart" in told
