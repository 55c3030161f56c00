"""Say what this machine has, what serve would use and why, and what would stop it."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from gateway.commands.calibrate import Figures, as_json, meaning, measure, plot, tables
from gateway.commands.layout import listed, sentence, terminal_width
from gateway.commands.listening import Place, look_at
from gateway.commands.options import add_setting_flags, settings_of
from gateway.commands.serve import make_tls, require_safe_address
from gateway.engine.loading import slot_context
from gateway.engine.names import JOIN, NGRAM, OFF, resolve
from gateway.fleet.sources import first_package
from gateway.http.keys import key_ring
from gateway.settings import Settings
from models.errors import UserError
from models.memory import available_bytes, format_bytes, memory_need, require_memory
from models.package import DrafterSpec, Package, load_package
from models.processor import cpu_flags, has_integer_dot_product, processor_count, processor_name
from models.providers import load_onnxruntime, nvidia_devices, select_provider

LIBRARIES = (
    *("outpace", "aiohttp", "jinja2", "numpy", "orjson", "prometheus-client", "rich"),
    *("tokenizers", "uvloop"),
)
INTEGER_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")


@dataclass(slots=True)
class Section:
    """What was found about one thing; `problems` would stop serve."""

    title: str
    found: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_flags(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--calibrate", action="store_true", help="measure what runs cost, whatever is kept of that"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="write the calibration there as SVG"
    )


def run(parsed: argparse.Namespace) -> int:
    if parsed.plot is not None and not parsed.calibrate:
        raise UserError("--plot needs --calibrate.", code="invalid_setting", param="plot")
    settings = settings_of(parsed)
    sections = examine(settings)
    problems = [problem for section in sections for problem in section.problems]
    figures = None
    if parsed.calibrate and not problems:
        try:
            figures = asyncio.run(measure(settings))
        except UserError as error:
            problems.append(error.message)
    if figures is not None and parsed.plot is not None:
        _write(parsed.plot, plot(figures))
    if parsed.json:
        found = {section.title: section.found for section in sections}
        if figures is not None:
            found["calibration"] = as_json(figures)
        print(json.dumps({"ok": not problems, "problems": problems, **found}, indent=2))
    else:
        width = terminal_width()
        for section in sections:
            _print(section, width)
        if figures is not None:
            _print_figures(figures, width)
        print(f"\n{len(problems)} problem(s) would stop serve" if problems else "\nserve would run")
    return 1 if problems else 0


def examine(settings: Settings) -> list[Section]:
    package, package_section = _package(settings)
    place = look_at(settings)
    memory = _memory(settings, package, place.running)
    sections = [_versions(), _processor(), _gpu(), memory, package_section]
    return [*sections, _use(settings, package), _address(settings, place)]


def _versions() -> Section:
    section = Section("versions", {"python": platform.python_version()})
    for name in LIBRARIES:
        section.found[name] = _version(name)
    try:
        onnxruntime = load_onnxruntime()
    except UserError as error:
        section.found["onnxruntime"] = None
        section.problems.append(error.message)
    else:
        section.found["onnxruntime"] = onnxruntime.__version__
        section.found["providers"] = onnxruntime.get_available_providers()
    return section


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> Section:
    flags = cpu_flags()
    return Section(
        "processor",
        {
            "model": processor_name(),
            "usable processors": processor_count(),
            "features": [flag for flag in INTEGER_FLAGS if flag in flags],
            "int8 dot products": has_integer_dot_product(),
        },
    )


def _gpu() -> Section:
    return Section("gpu", {"device nodes": list(nvidia_devices()), "nvidia-smi": _nvidia_smi()})


def _nvidia_smi() -> list[str] | None:
    """One line per GPU; None where the tool is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=name,driver_version,memory.total,memory.free", "--format=csv"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip().splitlines()[1:]


def _memory(settings: Settings, package: Package | None, running: bool) -> Section:
    """What is available counts, unless a gateway runs already and has what it needs."""
    available = available_bytes()
    section = Section(
        "memory",
        {
            "total": _bytes(_total_bytes()),
            "available": _bytes(available),
            "needed": None,
        },
    )
    if package is not None:

        def check() -> None:
            assert package is not None
            context = slot_context(package, settings.engine_options)
            use = settings.engine_options.device_use
            need = memory_need(package, settings.slots, context, settings.prefill_chunk, use)
            section.found["needed"] = need.describe()
            if settings.check_memory and not running:
                require_memory(need)

        _noting(section, check)
    return section


def _total_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line[:9] == "MemTotal:"), None)


def _bytes(count: int | None) -> str | None:
    return None if count is None else format_bytes(count)


def _package(settings: Settings) -> tuple[Package | None, Section]:
    path = first_package(settings.package)
    section = Section("package", {"path": str(path)})
    try:
        package = load_package(path)
    except UserError as error:
        section.problems.append(error.message)
        return None, section
    manifest = package.manifest
    target = manifest.target
    section.found |= {
        "name": manifest.name,
        "checkpoint": " @ ".join(filter(None, (target.checkpoint, target.revision))),
        "architecture": target.architecture,
        "weights": target.weight_type,
        "built for": target.device,
        "context": target.context_length,
        "rows": list(package.row_counts),
        "drafters": [NGRAM, *map(_drafter, manifest.drafters)],
        "chat template": manifest.chat_template is not None,
        "files": {name: entry.bytes for name, entry in manifest.files.items()},
        "parity": dict(manifest.parity),
        "quality": dict(manifest.quality),
    }
    return package, section


def _drafter(spec: DrafterSpec) -> str:
    known = [
        " @ ".join(filter(None, (spec.checkpoint, spec.revision))),
        f"reads {spec.reads or 'tokens'}",
        f"{spec.longest} tokens at most",
    ]
    if spec.survival:
        known.append("survival " + " ".join(f"{share:.2f}" for share in spec.survival))
    return f"{spec.kind} ({'; '.join(known)})"


def _use(settings: Settings, package: Package | None) -> Section:
    section = Section("use")
    if package is None:
        return section
    target = package.manifest.target

    def check() -> None:
        provider = select_provider(settings.device, target.device)
        asked = settings.device == "auto"
        section.found["provider"] = provider.onnxruntime_names[0]
        section.found["why"] = (
            f"the package was built for {target.device}" if asked else "asked for by --device"
        )
        if provider.device == "cpu" and nvidia_devices():
            section.found["hint"] = (
                "a GPU is here: `python -m export --demo --device cuda --out DIR` makes a package"
                " for it"
            )
        if target.integer_form == "u8s8" and not has_integer_dot_product():
            section.problems.append(
                "the package's integer products (u8s8) need a processor with VNNI or AMX;"
                " export it again on this machine."
            )

    _noting(section, check)
    drafter = settings.speculation_drafter

    def check_drafter() -> None:
        nonlocal drafter
        kinds = [spec.kind for spec in package.manifest.drafters]
        drafter = JOIN.join(resolve(drafter, kinds)) or OFF

    _noting(section, check_drafter)
    section.found["slots"] = settings.slots
    section.found["threads"] = settings.threads or processor_count()
    section.found["context"] = settings.context or target.context_length
    section.found["speculation"] = {
        "drafter": drafter,
        "policy": settings.speculation_policy,
        "length": settings.speculation_length or "auto",
    }
    return section


def _address(settings: Settings, place: Place) -> Section:
    section = Section("address", {"host": settings.host, "port": settings.port})
    section.found["TLS"] = settings.tls_certificate is not None
    _noting(section, lambda: _check_keys(settings, section))
    _noting(section, lambda: make_tls(settings))
    if place.problem:
        section.problems.append(place.told)
    else:
        section.found["now"] = place.told
    return section


def _check_keys(settings: Settings, section: Section) -> None:
    keys = len(key_ring(settings, os.environ))
    section.found["api keys"] = keys
    require_safe_address(settings, keys)


def _noting(section: Section, check: Callable[[], object]) -> None:
    try:
        check()
    except UserError as error:
        section.problems.append(error.message)


def _print(section: Section, width: int) -> None:
    print(section.title)
    for name, value in section.found.items():
        print("\n".join(listed(f"  {name:<18} ", _values(value), width)))
    for problem in section.problems:
        print("\n".join(sentence(f"  {'PROBLEM':<18} ", problem, width)))


def _print_figures(figures: Figures, width: int) -> None:
    for table in tables(figures):
        print()
        print("\n".join(table.lines()))
    print()
    for line in meaning(figures):
        print("\n".join(sentence("", line, width)))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", code="invalid_setting", param="plot"
        ) from None


def _values(value: Any) -> list[str]:
    """What a line lists: each is kept whole where it can be."""
    if isinstance(value, dict):
        return [f"{name} {_shown(inner)}" for name, inner in value.items()] or ["none"]
    if isinstance(value, (list, tuple)):
        return [*map(str, value)] or ["none"]
    return [_shown(value)]


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(_values(value)) if isinstance(value, (dict, list, tuple)) else str(value)
