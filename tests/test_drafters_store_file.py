"""One user's texts on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.drafters.store_file import append_text, read_texts, rewrite_texts

OWNER, OTHER = "a" * 64, "b" * 64
TEXTS = [(1, 2, 3), (70_000, 5), tuple(range(500))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "one.ngrams"
    size = 0
    for text in TEXTS:
        size = append_text(path, OWNER, text, size)
    assert path.stat().st_size == size
    return path


def test_what_is_written_is_read(path: Path) -> None:
    assert read_texts(path, OWNER) == (TEXTS, path.stat().st_size)
    assert path.stat().st_mode & 0o077 == 0, "nobody else may read it"


def test_nothing_is_read_where_there_is_nothing(tmp_path: Path) -> None:
    assert read_texts(tmp_path / "none", OWNER) == ([], 0)


@pytest.mark.parametrize("other", [OTHER, OWNER[:-1], ""])
def test_a_file_is_its_owners_alone(path: Path, other: str) -> None:
    """Whatever it is called: it may have been renamed, or restored from elsewhere."""
    assert read_texts(path, other) == ([], 0)


@pytest.mark.parametrize("cut", [1, 4, 7, 2000])
def test_a_record_that_was_cut_off_is_left_out(path: Path, cut: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    texts, valid = read_texts(path, OWNER)
    assert texts == TEXTS[:2]
    assert append_text(path, OWNER, (9, 9), valid) == path.stat().st_size
    assert read_texts(path, OWNER)[0] == [*TEXTS[:2], (9, 9)]


def test_no_altered_byte_is_read(path: Path) -> None:
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        texts, _ = read_texts(path, OWNER)
        assert texts == TEXTS[: len(texts)]
        assert len(texts) < len(TEXTS)


def test_where_there_is_less_than_was_there_it_begins_anew(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(b"")
    append_text(path, OWNER, (4, 5), size)
    assert read_texts(path, OWNER)[0] == [(4, 5)]


def test_rewriting_leaves_what_was_asked_for(path: Path) -> None:
    size = rewrite_texts(path, OWNER, TEXTS[1:])
    assert read_texts(path, OWNER) == (TEXTS[1:], size)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_rewrite_that_fails_changes_nothing(path: Path) -> None:
    with pytest.raises(OverflowError):
        rewrite_texts(path, OWNER, [(1,), (1 << 40,)])
    assert read_texts(path, OWNER)[0] == TEXTS
