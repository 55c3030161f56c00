"""Part `hardware`: what is here, and whether ONNX Runtime runs a graph on it at all."""

from __future__ import annotations

import shutil
import subprocess

from bench.gpu.site import Outcome, Site
from bench.machine import describe_machine, versions
from bench.report import Promise, none_of
from models.providers import load_onnxruntime
from models.rows import Row
from models.target import Target

_QUERY = "name,driver_version,compute_cap,memory.total,memory.used,clocks.sm,clocks.mem,power.limit"


def run(site: Site) -> Outcome:
    onnxruntime = load_onnxruntime()
    figures = {
        "gpu": smi(_QUERY),
        "machine": describe_machine(None),
        "versions": versions(),
        "providers": onnxruntime.get_available_providers(),
        "build": onnxruntime.get_build_info(),
    }
    target = Target(site.package("tiny", "fp16"), site.provider())
    (slot,) = target.make_slots(1, 64)
    (result,) = target.run([Row(slot, tuple(range(3, 11)), logits=8)])
    refused = [reason for counts in target.graph_counts for reason in counts.refused]
    finite = bool((result.logsumexp < 1e6).all())
    return Outcome(
        figures | {"refused": refused},
        [
            Promise("a graph runs and says something finite", float(finite), ">=", 1.0),
            none_of("graphs that cannot be captured", len(refused), "; ".join(refused)[:300]),
        ],
    )


def smi(query: str) -> list[dict[str, str]] | None:
    """What `nvidia-smi` says of every GPU; None where there is none of it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = query.split(",")
    return [
        dict(zip(names, map(str.strip, line.split(",")), strict=False))
        for line in done.stdout.strip().splitlines()
    ]


def memory_used_mib() -> float | None:
    """On the first GPU, by everybody."""
    found = smi("memory.used")
    return float(found[0]["memory.used"].split()[0]) if found else None
