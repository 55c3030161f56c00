"""What a package is made with: digests of the code and of the heads that make it.

A cached package is kept only while these are unchanged, so that a change to the export or to the
package format never leaves an old package behind. What changes nothing that is built is left out:
comments, docstrings, how a head was trained, its report.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_TRAINING = "training"
_HEADS = "demo_heads"
_CONFIG = "config.json"
_NOTES = frozenset({"training"})
"""Keys of a head's config that nobody reads who builds a package."""
_REPORTS = frozenset({"report.json", "report.txt"})
_DIGITS = 32


def recipe() -> str:
    """The parts and their digests, `part=digest` joined by `;`.

    What trains heads makes no package; the heads that come with the demo are part of one.
    """
    return ";".join(f"{part}={digest}" for part, digest in sorted(_digests().items()))


def changed_parts(before: str, now: str) -> list[str]:
    """The parts in which two recipes differ, in words."""
    one, other = _parsed(before), _parsed(now)
    if one is None or other is None:
        return ["how the export tells its parts apart has changed"]
    changed = (part for part in sorted(one | other) if one.get(part) != other.get(part))
    return [f"{part} has changed" for part in changed]


def _parsed(text: str) -> dict[str, str] | None:
    pairs = [entry.partition("=") for entry in text.split(";")]
    if not all(part and equals and digest for part, equals, digest in pairs):
        return None
    return {part: digest for part, _, digest in pairs}


def _digests() -> Mapping[str, str]:
    parts: dict[str, bytes] = defaultdict(bytes)
    for path in _files():
        where = path.relative_to(_ROOT)
        part = where if where.parts[0] == "models" else where.parent
        parts[part.as_posix()] += where.as_posix().encode() + b"\0" + _content(path)
    return {part: hashlib.sha256(known).hexdigest()[:_DIGITS] for part, known in parts.items()}


def _files() -> Iterator[Path]:
    export = _ROOT / "export"
    for path in sorted(export.rglob("*.py")):
        if _TRAINING not in path.relative_to(export).parts:
            yield path
    for path in sorted((export / _HEADS).rglob("*")):
        if path.is_file() and path.name not in _REPORTS:
            yield path
    yield _ROOT / "models" / "package.py"


def _content(path: Path) -> bytes:
    """A digest of what counts in a file."""
    if path.suffix == ".py":
        return hashlib.sha256(code_of(path.read_text(encoding="utf-8")).encode()).digest()
    if path.name == _CONFIG:
        config = json.loads(path.read_text(encoding="utf-8"))
        known = {key: value for key, value in config.items() if key not in _NOTES}
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).digest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def code_of(source: str) -> str:
    """Python without its comments, docstrings and blank lines.

    By the text and not by the tree: a tree is another with another Python.
    """
    lines = source.splitlines(keepends=True)
    drawn = [line.encode() for line in lines]
    blank: set[int] = set()
    for row, begin, end in _prose(source, drawn):
        drawn[row] = drawn[row][:begin] + drawn[row][end:]
        if not drawn[row].strip():
            blank.add(row)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NL and not token.line.strip():
            blank.add(token.start[0] - 1)
    kept = (line for row, line in enumerate(drawn) if row not in blank)
    return b"".join(line.rstrip() + b"\n" for line in kept).decode()


def _prose(source: str, lines: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """What is said to people: its row, and the bytes of the row that it takes."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row = token.start[0] - 1
            yield row, len(token.line[: token.start[1]].encode()), len(lines[row].rstrip(b"\r\n"))
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.value.value, str) and node.end_lineno and node.end_col_offset:
            last = node.end_lineno - 1
            for row in range(node.lineno - 1, last + 1):
                begin = node.col_offset if row == node.lineno - 1 else 0
                end = node.end_col_offset if row == last else len(lines[row].rstrip(b"\r\n"))
                yield row, begin, end
