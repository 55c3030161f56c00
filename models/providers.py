"""Where a graph runs: provider selection without silent fallback."""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from models.errors import UserError
from models.locations import cache_directory

log = logging.getLogger(__name__)

DEVICES = ("auto", "cpu", "cuda", "tensorrt")

_ONNXRUNTIME_NAMES = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}


GEMMS = ("auto", "default", "fpa-intb")
"""Products of 8 or 4 bit weights on CUDA: the usual kernels, or those of `fpa_intb_gemm`."""

_FPA_INTB = "ep.cuda.fpa_intb_gemm"

WIDTHS = (2, 3, 4, 5, 6, 8, 12, 16)
"""Tokens of a row in runs that are captured; a lone one is padded, as everywhere."""


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How a GPU is used; nothing of it says anything about a CPU.

    `memory_mib` bounds the memory that each loaded graph takes for its work (None: no bound).
    `graphs` has runs of one shape captured and replayed. With `strict_width` every verification is
    a run of that many tokens in each of the most rows there are: all of them go through the same
    kernels. `gemm` is one of `GEMMS`; `auto` is settled by measuring. `share_weights` has all
    graphs read one copy of the weights.
    """

    memory_mib: int | None = None
    graphs: bool = True
    strict_width: int | None = None
    gemm: str = "auto"
    share_weights: bool = True

    @property
    def widths(self) -> tuple[int, ...]:
        """Of narrow runs, each of which has one of these."""
        return WIDTHS if self.strict_width is None else (self.strict_width,)


DEFAULT_OPTIONS = DeviceOptions()
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Provider:
    """A device (`cpu`, `cuda`, `tensorrt`), what ONNX Runtime calls it, and how it is used.

    This is all that the code knows of a device. A provider whose `device` is not `cpu` takes the
    way of devices, buffers that stay there and are updated in place, whatever `memory` they lie in:
    so that way can be run, and is tested, where there is no GPU.
    """

    device: str
    onnxruntime_names: tuple[str, ...]
    memory: str
    options: dict[str, str] = field(default_factory=dict)
    use: DeviceOptions = DEFAULT_OPTIONS

    @property
    def on_host(self) -> bool:
        """Whether graphs run on the processor, on memory that it reads itself."""
        return self.device == "cpu"

    @property
    def captures(self) -> bool:
        """Whether runs of one shape are captured once and replayed."""
        return self.device == "cuda" and self.use.graphs

    @property
    def fixes(self) -> bool:
        """Whether narrow runs have one of a few shapes, each with a binding of its own."""
        return self.captures or self.device == "tensorrt"

    @property
    def for_drafters(self) -> Provider:
        """Where drafters run: their graphs are of CUDA's operators also beside TensorRT."""
        if self.device != "tensorrt":
            return self
        names = self.onnxruntime_names[1:] or self.onnxruntime_names
        return Provider("cuda", names, self.memory, options_of("cuda", self.use), self.use)

    def session_providers(
        self, *, capture: bool = False, more: Mapping[str, str] = _NO_OPTIONS
    ) -> list[tuple[str, dict[str, str]]]:
        """With `more` options of the first one."""
        first, *rest = self.onnxruntime_names
        # A processor that plays a device knows none of its options.
        options = {**self.options, **({} if first == _ONNXRUNTIME_NAMES["cpu"] else more)}
        if capture and first == _ONNXRUNTIME_NAMES["cuda"]:
            options["enable_cuda_graph"] = "1"
        return [(first, options), *((name, {}) for name in rest)]

    @property
    def described(self) -> str:
        """All of it that decides what runs cost."""
        name, use = self.onnxruntime_names[0], self.use
        if self.on_host or use == DEFAULT_OPTIONS:
            return name
        parts = [f"gemm {use.gemm}"]
        parts += [] if use.graphs else ["no graphs"]
        parts += [f"strict {use.strict_width}"] if use.strict_width is not None else []
        return f"{name} ({', '.join(parts)})"

    def session_entries(self) -> dict[str, str]:
        """Configuration entries of a session."""
        return {_FPA_INTB: "1"} if self.device == "cuda" and self.use.gemm == GEMMS[2] else {}


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


def select_provider(
    device: str, package_device: str, use: DeviceOptions = DEFAULT_OPTIONS
) -> Provider:
    """The provider for `device`, where `auto` means what the package was built for.

    Raises `UserError` with the reason; never falls back to another: `unknown_device`,
    `provider_unavailable` where the package or what is installed is for another device,
    `device_unavailable` where the device is not there now.
    """
    if device not in DEVICES:
        raise UserError(
            f"unknown device {device!r}; known are {', '.join(DEVICES)}.",
            code="unknown_device",
            param="device",
        )
    wanted = package_device if device == "auto" else device
    if wanted != package_device:
        raise UserError(
            f"the package was built for {package_device} and cannot run on {wanted}."
            f" Export it again with --device {wanted}.",
            code="provider_unavailable",
            param="device",
        )
    onnxruntime = load_onnxruntime()
    available = onnxruntime.get_available_providers()
    name = _ONNXRUNTIME_NAMES[wanted]
    if name not in available:
        raise UserError(
            _unavailable(wanted, available), code="provider_unavailable", param="device"
        )
    if wanted == "cpu":
        return Provider(device=wanted, onnxruntime_names=(name,), memory="cpu")
    if not nvidia_devices():
        raise UserError(
            f"device {wanted} needs an NVIDIA GPU and there is no /dev/nvidia* on this machine.",
            code="device_unavailable",
            param="device",
        )
    # The CUDA libraries of the extra lie in packages of their own, where no loader looks.
    onnxruntime.preload_dlls()
    names = (name, _ONNXRUNTIME_NAMES["cuda"]) if wanted == "tensorrt" else (name,)
    return Provider(wanted, names, "cuda", options_of(wanted, use), use)


def options_of(device: str, use: DeviceOptions) -> dict[str, str]:
    """The options of the device's execution provider.

    The arena grows by what is asked for: by default it doubles, and the last doubling of a large
    model takes what the K/V needs.
    """
    if device == "tensorrt":
        return cache_options()
    if device != "cuda":
        return {}
    options = {"device_id": "0", "arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"}
    if use.memory_mib is not None:
        options["gpu_mem_limit"] = str(use.memory_mib << 20)
    return options


def cache_options(directory: Path | None = None) -> dict[str, str]:
    """Keep engines and timings in `directory` (None: where calibrations are kept).

    It is made here: ONNX Runtime makes the last part of a path alone, and loads nothing where it
    cannot. Where nothing can be kept engines are built at each start, and the log says so.
    """
    where, half = directory or cache_directory() / "tensorrt", {"trt_fp16_enable": "1"}
    try:
        where.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=where) as file:
            file.write(b"room")
    except OSError as error:
        log.warning("TensorRT's engines cannot be kept in %s: %s", where, error.strerror or error)
        return half
    return {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(where),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(where),
        **half,
    }


def _unavailable(wanted: str, available: list[str]) -> str:
    installed = ", ".join(available)
    return (
        f"device {wanted} is not available: the installed onnxruntime has only {installed}."
        " For a GPU replace it: pip uninstall onnxruntime && pip install 'outpace[gpu]'."
    )
