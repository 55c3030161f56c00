"""What a figure depends on: versions, processor, package."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from models.package import MANIFEST, Package
from models.processor import cpu_flags, has_integer_dot_product, processor_count
from models.providers import load_onnxruntime, nvidia_devices

_TELLING_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "onnxruntime": load_onnxruntime().__version__}
    for name in ("outpace", "numpy", "aiohttp", "tokenizers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def describe_machine(threads: int | None) -> dict[str, Any]:
    flags = cpu_flags()
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "processors": processor_count(),
        "threads": threads or processor_count(),
        "flags": [flag for flag in _TELLING_FLAGS if flag in flags],
        "integer_dot_product": has_integer_dot_product(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": list(nvidia_devices()),
        "load": list(os.getloadavg()),
    }


def describe_package(package: Package) -> dict[str, Any]:
    manifest = package.manifest
    target = manifest.target
    return {
        "name": manifest.name,
        "digest": package_digest(package),
        "outpace": manifest.outpace,
        "checkpoint": target.checkpoint,
        "revision": target.revision,
        "architecture": target.architecture,
        "weight_type": target.weight_type,
        "integer_form": target.integer_form,
        "kv_type": target.kv_type,
        "device": target.device,
        "rows": list(package.row_counts),
        "parity": dict(manifest.parity),
        "quality": dict(manifest.quality),
    }


def package_digest(package: Package) -> str:
    """The manifest's digest of itself, which covers every file's."""
    document = json.loads(package.file(MANIFEST).read_bytes())
    digest: str = document["digest"]
    return digest


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in use now (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no resident memory: it has ended")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown processor")
