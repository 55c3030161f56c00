"""What of a GPU's memory is free, asked of its driver (NVML), which needs no CUDA context for that.

CUDA's device 0 is meant, as everywhere here. Where it cannot be said which GPU that is, or how much
of it there is, the answer is that it is not known, and why.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
"""Of the driver; nothing else has to be installed."""

_SUCCESS, _MIG_ENABLED = 0, 1


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Bytes; None where that is not known, for the reason `why`."""

    bytes: int | None
    why: str = ""


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _UnknownError(Exception):
    """Why it is not known."""


def free_memory(environment: Mapping[str, str] | None = None) -> FreeMemory:
    """Of the GPU that CUDA numbers 0 in this environment."""
    try:
        library = _library()
        device = _device(library, os.environ if environment is None else environment)
        memory = _Memory()
        _call(library, "nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    except _UnknownError as error:
        return FreeMemory(None, str(error))
    return FreeMemory(int(memory.free))


@functools.cache
def _library() -> Any:
    """Loaded and initialised once: initialising may take a second, asking takes next to nothing."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise _UnknownError(f"there is no {LIBRARY}, which comes with the driver") from None
    _call(library, "nvmlInit_v2")
    return library


def _device(library: Any, environment: Mapping[str, str]) -> Any:
    """The handle of CUDA's device 0."""
    device = ctypes.c_void_p()
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        _call(library, "nvmlDeviceGetHandleByUUID", first.encode(), ctypes.byref(device))
        return device
    if not first.isdecimal():
        raise _UnknownError(f"CUDA_VISIBLE_DEVICES is {visible!r}, which names no GPU first")
    count = ctypes.c_uint()
    _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    # CUDA puts the fastest first; NVML, and CUDA where it is told to, goes by the bus.
    if count.value > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise _UnknownError(
            f"there are {count.value} GPUs; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name one by its"
            " UUID in CUDA_VISIBLE_DEVICES"
        )
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(first)), ctypes.byref(device))
    if _is_divided(library, device):
        raise _UnknownError("the GPU is divided (MIG); name a part in CUDA_VISIBLE_DEVICES")
    return device


def _is_divided(library: Any, device: Any) -> bool:
    """What is free of a divided GPU says nothing of the part that is used."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        mode = ctypes.byref(current), ctypes.byref(pending)
        _call(library, "nvmlDeviceGetMigMode", device, *mode)
    except _UnknownError:
        return False  # it cannot be divided
    return current.value == _MIG_ENABLED


def _call(library: Any, name: str, *arguments: Any) -> None:
    function = getattr(library, name, None)
    if function is None:
        raise _UnknownError(f"the driver has no {name}")
    status = function(*arguments)
    if status != _SUCCESS:
        raise _UnknownError(f"the driver answers {name} with error {status}")
