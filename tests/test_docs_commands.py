"""Every command that the documents name exists, with every flag that they give it."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.__main__ import _parser as bench_parser
from export.options import parser as export_parser
from export.training.command import _parser as training_parser
from gateway.__main__ import _parser as gateway_parser

ROOT = Path(__file__).parent.parent
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
INLINE = re.compile(r"`((?:\.venv/bin/)?(?:outpace|python -m (?:bench|export)) [^`]+)`")
LINE = re.compile(r"^.*?((?:\.venv/bin/outpace|^outpace|python -m (?:bench|export)) .*)$", re.M)
BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```$|^((?:    .*\n)+)", re.M | re.S)


def commands(text: str) -> Iterator[list[str]]:
    """Words of each: what stands in blocks of a shell's lines, and between single backticks."""
    blocks = ["".join(found).replace("\\\n", " ") for found in BLOCK.findall(text)]
    lines = [found for block in blocks for found in LINE.findall(block)]
    for line in [*lines, *INLINE.findall(text)]:
        words = shlex.split(line, comments=True)
        yield words[2:] if words[0].endswith("python") else ["outpace", *words[1:]]


def named() -> list[list[str]]:
    found = [words for document in DOCUMENTS for words in commands(document.read_text())]
    assert len(found) > 50
    return found


def subparser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    (commands,) = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    assert name in commands.choices, name
    found: argparse.ArgumentParser = commands.choices[name]
    return found


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    program, *rest = words
    if program == "export":
        return training_parser() if rest[0] == "train" else export_parser()
    return subparser({"outpace": gateway_parser, "bench": bench_parser}[program](), rest[0])


@pytest.mark.parametrize("words", named(), ids=" ".join)
def test_it_exists_with_its_flags(words: list[str]) -> None:
    known = parser_of(words)._option_string_actions
    given = [word for word in words if word.startswith("--")]
    assert [flag for flag in given if flag.partition("=")[0] not in known] == []
