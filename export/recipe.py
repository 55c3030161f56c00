"""What a package is made with: a digest over the code that makes it.

A cached package is kept only while this is unchanged, so that a change to the export or to the
package format never leaves an old package behind.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_TRAINING = "training"


def recipe() -> str:
    """SHA-256 over the names and contents of `export` and of the package format.

    What trains heads makes no package; the heads that come with the demo are part of one.
    """
    export, digest = _ROOT / "export", hashlib.sha256()
    sources = [path for path in sorted(export.rglob("*.py")) if _TRAINING not in path.parts]
    heads = [path for path in sorted((export / "demo_heads").rglob("*")) if path.is_file()]
    for path in (*sources, *heads, _ROOT / "models" / "package.py"):
        digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0")
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()
