"""Heads on disk, in the layouts that people publish: one file each family.

Reading tells the layout by the names of the tensors. Whatever is wrong with a head is a
`UserError` of code `head_invalid` that names the head and what was found and needed.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from export.heads.eagle3 import Eagle3
from export.heads.facts import HeadInfo, TargetFacts
from export.heads.layouts import medusa, mtp, safeailab, speculators
from export.heads.layouts.checks import check_target
from export.heads.layouts.files import PICKLES, WANTED, HeadFiles, open_head
from export.heads.layouts.published import publish
from export.heads.layouts.tidy import Head, drop_padding, share_copies
from export.heads.medusa import Medusa
from export.heads.mtp import Mtp
from models.errors import UserError

__all__ = ["PICKLES", "WANTED", "Head", "read", "write"]

_MEDUSA_FILE = "medusa_lm_head.safetensors"
_FILE = "model.safetensors"
_CALLED = {
    "eagle": "an EAGLE head",
    "eagle3": "an EAGLE-3 head",
    "medusa": "Medusa heads",
    "mtp": "MTP modules",
}


def read(
    path: Path, facts: TargetFacts, *, name: str = "", revision: str = "", wanted: str = ""
) -> tuple[Head, HeadInfo]:
    """The head at `path` (a directory, or a file with its config.json beside it).

    `wanted` refuses other kinds: "eagle" takes EAGLE-1, 2 and 3, "medusa", "mtp".
    """
    files = open_head(Path(path), name or Path(path).name)
    kind = _kind(files, wanted)
    if wanted and kind != wanted and not (wanted == "eagle" and kind == "eagle3"):
        raise files.refused(f"is {_CALLED[kind]}, not {_CALLED[wanted]}")
    check_target(files, facts)
    try:
        module, info = _read(files, facts, kind)
    except UserError:
        raise
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise files.refused(f"could not be read ({error})") from error
    drop_padding(module, facts.vocab_size)
    share_copies(module, facts)
    vocabulary = _draft_vocabulary(module, facts)
    info = dataclasses.replace(
        info, name=files.name, revision=revision, sha256=files.sha256(), draft_vocab=vocabulary
    )
    return module, info


def _kind(files: HeadFiles, wanted: str) -> str:
    if wanted == "mtp" and mtp.family_of(files) is None:
        raise files.refused("holds no MTP modules (model.layers.*.eh_proj, model.mtp_layers.*)")
    declared = files.config.get(speculators.TYPE)
    if declared is not None:
        if declared in ("eagle", "eagle3"):
            return str(declared)
        raise files.refused(f"is a speculator of type {declared!r}; known are eagle and eagle3")
    if safeailab.is_eagle3(files):
        return "eagle3"
    if mtp.family_of(files) is not None:
        return "mtp"
    if safeailab.is_eagle(files):
        return "eagle"
    if medusa.is_medusa(files):
        return "medusa"
    shown = ", ".join(sorted(files.homes)[:3])
    raise files.refused(
        f"is of no known layout (EAGLE, EAGLE-3, Medusa, MTP): its tensors are {shown}, ..."
    )


def _read(files: HeadFiles, facts: TargetFacts, kind: str) -> tuple[Head, HeadInfo]:
    if kind == "medusa":
        return medusa.read_medusa(files, facts)
    if kind == "mtp":
        return mtp.read_mtp(files, facts)
    layout: Any = speculators if speculators.TYPE in files.config else safeailab
    head: tuple[Head, HeadInfo]
    head = layout.read_eagle3(files, facts) if kind == "eagle3" else layout.read_eagle(files, facts)
    return head


def _draft_vocabulary(module: Head, facts: TargetFacts) -> int:
    ids = module.draft_ids() if isinstance(module, Eagle3) else None
    return facts.vocab_size if ids is None else len(ids)


def write(module: Head, info: HeadInfo, directory: Path, facts: TargetFacts) -> None:
    """The head in the layout of SafeAILab, FasterDecoding or DeepSeek-V3, in fp16.

    `config.json` names the target, so that another one refuses the head.
    """
    name = _MEDUSA_FILE if isinstance(module, Medusa) else _FILE
    publish(directory / name, module.state_dict(), _config(module, info, facts), facts)


def _config(module: Head, info: HeadInfo, facts: TargetFacts) -> dict[str, Any]:
    if isinstance(module, Medusa):
        return medusa.medusa_config(module, facts.name)
    if isinstance(module, Mtp):
        return mtp.mtp_config(module, info)
    if isinstance(module, Eagle3):
        return safeailab.eagle3_config(module, info)
    return safeailab.eagle_config(module, info)
