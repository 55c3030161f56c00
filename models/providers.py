"""Where a graph runs: provider selection without silent fallback."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from models.errors import UserError

DEVICES = ("auto", "cpu", "cuda", "tensorrt")

_ONNXRUNTIME_NAMES = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}


@dataclass(frozen=True, slots=True)
class Provider:
    """A device (`cpu`, `cuda`, `tensorrt`) and what ONNX Runtime calls it."""

    device: str
    onnxruntime_names: tuple[str, ...]
    memory: str
    options: dict[str, str] = field(default_factory=dict)

    def session_providers(self) -> list[tuple[str, dict[str, str]]]:
        first, *rest = self.onnxruntime_names
        return [(first, self.options), *((name, {}) for name in rest)]


def load_onnxruntime() -> Any:
    """The onnxruntime module, or a `UserError` that names the extra to install."""
    try:
        module: ModuleType = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UserError(
            f"onnxruntime cannot be imported ({error}). Install one of the extras:"
            " pip install 'outpace[cpu]' or, with an NVIDIA GPU, pip install 'outpace[gpu]'.",
            code="onnxruntime_missing",
        ) from None
    return module


def nvidia_devices() -> tuple[str, ...]:
    """Device nodes of the NVIDIA GPUs of this machine."""
    return tuple(sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*")))


def select_provider(device: str, package_device: str) -> Provider:
    """The provider for `device`, where `auto` means what the package was built for.

    Raises `UserError` (`provider_unavailable`) with the reason; never falls back to another.
    """
    if device not in DEVICES:
        raise UserError(
            f"unknown device {device!r}; known are {', '.join(DEVICES)}.",
            code="unknown_device",
            param="device",
        )
    wanted = package_device if device == "auto" else device
    if wanted != package_device:
        remedy = (
            "Packages for it cannot be exported yet."
            if wanted == "tensorrt"
            else f"Export it again with --device {wanted}."
        )
        raise UserError(
            f"the package was built for {package_device} and cannot run on {wanted}. {remedy}",
            code="provider_unavailable",
            param="device",
        )
    available = load_onnxruntime().get_available_providers()
    name = _ONNXRUNTIME_NAMES[wanted]
    if name not in available:
        raise UserError(
            _unavailable(wanted, available), code="provider_unavailable", param="device"
        )
    if wanted != "cpu" and not nvidia_devices():
        raise UserError(
            f"device {wanted} needs an NVIDIA GPU and there is no /dev/nvidia* on this machine.",
            code="provider_unavailable",
            param="device",
        )
    names = (name, "CUDAExecutionProvider") if wanted == "tensorrt" else (name,)
    return Provider(
        device=wanted, onnxruntime_names=names, memory="cpu" if wanted == "cpu" else "cuda"
    )


def _unavailable(wanted: str, available: list[str]) -> str:
    installed = ", ".join(available)
    return (
        f"device {wanted} is not available: the installed onnxruntime has only {installed}."
        " For a GPU replace it: pip uninstall onnxruntime && pip install 'outpace[gpu]'."
    )
