"""What the processor can do, as far as packages depend on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_DOT_PRODUCT_FLAGS = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def processor_count() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model as Linux names it; where it does not say, as the platform does."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's feature flags as Linux names them; empty where it does not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def has_integer_dot_product() -> bool:
    """Whether u8 x s8 products accumulate in 32 bits (VNNI or AMX); AVX2 alone saturates."""
    return bool(cpu_flags() & _DOT_PRODUCT_FLAGS)


def integer_form() -> str:
    """How w8a8 products are made here: `u8s8` where it does not saturate, else `u8u8`.

    `u8u8` stores weights as uint8 with zero point 128: exact everywhere, slower with VNNI or AMX.
    """
    return "u8s8" if has_integer_dot_product() else "u8u8"
