"""A head's files: its config, and its tensors by their published names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from models.errors import UserError

WANTED = ("config.json", "tokenizer.json", "*.safetensors", "*.safetensors.index.json")
"""What to fetch of a head's repository, and `PICKLES` where that has no tensors."""
PICKLES = ("pytorch_model*.bin", "medusa_lm_head.pt")
_MEDUSA = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """`config` is the parsed config.json; `homes` says which file holds a tensor."""

    name: str
    directory: Path
    config: dict[str, Any]
    homes: dict[str, Path]

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """The tensors; floats as fp32."""
        wanted: dict[Path, list[str]] = {}
        for name in names:
            wanted.setdefault(self.homes[name], []).append(name)
        tensors: dict[str, Tensor] = {}
        for path, inside in wanted.items():
            tensors |= _read(self.name, path, inside)
        return {name: self._plain(name, tensor) for name, tensor in tensors.items()}

    def sha256(self) -> str:
        """One digest over the files that hold tensors, in the order of their names."""
        digest = hashlib.sha256()
        for path in sorted(set(self.homes.values())):
            with path.open("rb") as stream:
                inner = hashlib.file_digest(stream, "sha256").hexdigest()
            digest.update(f"{path.name}:{inner}\n".encode())
        return digest.hexdigest()

    def refused(self, problem: str) -> UserError:
        return invalid(self.name, problem)

    def _plain(self, name: str, tensor: Tensor) -> Tensor:
        if tensor.dtype in (torch.bool, torch.int32, torch.int64):
            return tensor
        if tensor.dtype not in _FLOATS:
            raise self.refused(f"holds {name} as {tensor.dtype}: quantised heads are not supported")
        return tensor.float()


def open_head(path: Path, name: str) -> HeadFiles:
    """`path` is a directory, or a file of tensors with its config.json beside it."""
    if not path.exists():
        raise invalid(name, f"is not at {path}")
    directory = path if path.is_dir() else path.parent
    config = _config(directory / "config.json", name)
    files = _files(directory) if path.is_dir() else [path]
    homes = {tensor: file for file in files for tensor in _names(name, file)}
    if not homes:
        raise invalid(
            name,
            f"has no tensors in {directory}:"
            " no .safetensors, pytorch_model.bin or medusa_lm_head.pt",
        )
    return HeadFiles(name, directory, config, homes)


def invalid(name: str, problem: str) -> UserError:
    return UserError(f"the head {name} {problem}.", code="head_invalid", param=name)


def _config(path: Path, name: str) -> dict[str, Any]:
    if not path.is_file():
        raise invalid(name, f"is no head: {path.parent} has no config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise invalid(name, f"has an unreadable config.json ({error})") from None
    if not isinstance(config, dict):
        raise invalid(name, "has a config.json that is no JSON object")
    return config


def _files(directory: Path) -> list[Path]:
    """Medusa's own file, which a base model may lie beside; else safetensors; else a pickle.

    Other pickles than weights (training_args.bin, optimizer.pt) are no concern of ours.
    """
    for pattern in (*_MEDUSA, "*.safetensors", "pytorch_model*.bin"):
        found = sorted(directory.glob(pattern))
        if found:
            return found
    return []


def _names(name: str, path: Path) -> list[str]:
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, "pt") as file:
                return list(file.keys())
        except (OSError, SafetensorError) as error:
            raise invalid(name, f"has a corrupt file {path.name} ({error})") from None
    return list(_unpickled(name, path))


def _read(name: str, path: Path, names: Sequence[str]) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, "pt") as file:
                return {tensor: file.get_tensor(tensor) for tensor in names}
        except (OSError, SafetensorError) as error:
            raise invalid(name, f"has a corrupt file {path.name} ({error})") from None
    tensors = _unpickled(name, path)
    return {tensor: tensors[tensor] for tensor in names}


def _unpickled(name: str, path: Path) -> dict[str, Tensor]:
    """Tensors only: a pickle that would run code is refused."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damage shows itself as one of many kinds of errors
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise invalid(name, f"has a corrupt or unsafe file {path.name} ({reason[0]})") from None
    if not isinstance(loaded, dict):
        raise invalid(name, f"has a file {path.name} that is no set of tensors")
    return {key: value for key, value in loaded.items() if isinstance(value, Tensor)}
