"""What the documents link to is there, headings included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """As GitHub names headings; these have no two alike."""
    titles = HEADING.findall(FENCED.sub("", document.read_text()))
    names = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    assert len(names) == len(set(names)), document
    return set(names)


def links(document: Path) -> list[str]:
    text = CODE.sub("", FENCED.sub("", document.read_text()))
    return [link for link in LINK.findall(text) if "://" not in link]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_readme_names_every_document() -> None:
    named = {(ROOT / link.partition("#")[0]).resolve() for link in links(DOCUMENTS[0])}
    assert set(DOCUMENTS[1:]) <= named
