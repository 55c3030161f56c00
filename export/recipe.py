"""What a package is made with: a digest over the code that makes it.

A cached package is kept only while this is unchanged, so that a change to the export or to the
package format never leaves an old package behind.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def recipe() -> str:
    """SHA-256 over the names and contents of `export` and of the package format."""
    digest = hashlib.sha256()
    sources = [*sorted((_ROOT / "export").rglob("*.py")), _ROOT / "models" / "package.py"]
    for path in sources:
        digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()
