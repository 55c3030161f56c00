"""Loading a package: what must hold before an engine is made, and what is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.engine.costs.cache import Calibrated, CalibrationCache, Key, obtain
from gateway.engine.costs.gemm import decide
from gateway.engine.learned import Learned, learned_drafters
from gateway.engine.options import EngineOptions
from models.chat_template import ChatTemplate
from models.errors import UserError
from models.huge_pages import collapse
from models.locations import cache_directory
from models.memory import MemoryNeed, format_bytes, memory_need, require_memory, why_unknown
from models.package import Package
from models.probe import ProbeResult, probe
from models.processor import has_integer_dot_product, processor_count, processor_name
from models.providers import Provider, load_onnxruntime, select_provider
from models.slots import SlotPool
from models.strict_probe import probe_strict
from models.target import Target
from models.tensorrt import WIDEST

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A package that is ready to run: its target, slots, and what was measured of them."""

    target: Target
    pool: SlotPool
    probed: ProbeResult
    calibrated: Calibrated
    memory: MemoryNeed
    learned: Learned | None


def load(
    package: Package,
    options: EngineOptions,
    report: Report,
    *,
    recalibrate: bool = False,
    provider: Provider | None = None,
) -> Loaded:
    """Load, probe and calibrate. Raises `UserError` when the package cannot run here.

    With `recalibrate` no calibration that was kept is used. `provider` is where it runs, instead of
    what `options` name.
    """
    context = slot_context(package, options)
    spec = package.manifest.target
    if provider is None:
        provider = select_provider(options.device, spec.device, options.device_use)
    _require_suitable(package, provider, options)
    need = memory_need(package, options.slots, context, options.prefill_chunk, options.device_use)
    report(f"memory needed: {need.describe()}")
    if options.check_memory:
        if (unknown := why_unknown(need)) is not None:
            report(f"{unknown} It is not checked.")
        require_memory(need)
    cache = CalibrationCache(cache_directory() / "calibration")
    key = _calibration_key(package, provider, options, context)
    provider = decide(provider, package, key, cache.directory, options.threads)
    key = replace(key, provider=provider.described)
    target = Target(package, provider, options.threads, check_memory=options.check_parts)
    slots = target.make_slots(options.slots, context)
    report(f"graphs loaded for {target.most_rows} rows on {provider.device}")
    warmed = target.warm_up(slots, options.prefill_chunk, report)
    if provider.fixes:
        report(f"{warmed} shapes made ready" if warmed else "no run has a fixed shape")
    strict = target.strict_width
    probed = (probe if strict is None else probe_strict)(target, slots, spec.vocab_size)
    report("bitwise row-independent" if probed.exact else f"not exact: {probed.differences}")
    use_huge_pages(provider, report)
    calibrated = obtain(target, slots, cache, key, fresh=recalibrate)
    report(
        f"run times {'kept since' if calibrated.cached else 'measured'} {calibrated.measured_at}"
    )
    pool = SlotPool(slots, can_copy=provider.on_host, shared=options.share_prefixes)
    learned = learned_drafters(
        package,
        provider.for_drafters,
        options.threads,
        target.weights,
        target.running,
        check_memory=options.check_parts,
    )
    return Loaded(target, pool, probed, calibrated, need, learned)


def _require_suitable(package: Package, provider: Provider, options: EngineOptions) -> None:
    """Raises `UserError` for a processor, or options, that this package cannot be had with."""
    spec = package.manifest.target
    if spec.integer_form == "u8s8" and not has_integer_dot_product():
        raise UserError(
            "the package's integer products (u8s8) need a processor with VNNI or AMX; without"
            " them they overflow silently. Export it again on this machine.",
            code="processor_unsuitable",
            param="package",
        )
    if provider.device == "tensorrt" and options.prefill_chunk > WIDEST:
        raise UserError(
            f"TensorRT's engines take {WIDEST} tokens of a prompt at most, not"
            f" {options.prefill_chunk}.",
            code="invalid_setting",
            param="prefill_chunk",
        )
    _require_limit(package, provider)
    if options.trees and not spec.tree_graphs:
        raise UserError(
            "the package has no graphs for trees; start without trees.",
            code="invalid_setting",
            param="trees",
        )


def _require_limit(package: Package, provider: Provider) -> None:
    """Of what a graph may take, its own copy of the weights is a part."""
    use, target = provider.use, package.manifest.target
    size = package.manifest.files[target.weights].bytes
    if provider.device != "cuda" or use.memory_mib is None or use.share_weights:
        return
    if size > use.memory_mib << 20:
        raise UserError(
            f"gpu_memory_mib lets each graph take {use.memory_mib} MiB, and with gpu_share_weights"
            f" = false each has {format_bytes(size)} of weights: share them, or allow more.",
            code="invalid_setting",
            param="gpu_memory_mib",
        )


def use_huge_pages(provider: Provider, report: Report) -> None:
    """For what was loaded so far, where the processor reads it."""
    if provider.on_host and (moved := collapse()):
        report(f"huge pages: {format_bytes(moved)}")


def _calibration_key(
    package: Package, provider: Provider, options: EngineOptions, context: int
) -> Key:
    files = sorted(entry.sha256 for entry in package.manifest.files.values())
    return Key(
        package=hashlib.sha256("".join(files).encode()).hexdigest(),
        provider=provider.described,
        threads=options.threads or processor_count(),
        onnxruntime=load_onnxruntime().__version__,
        processor=processor_name(),
        context=context,
        rows=min(max(package.row_counts), options.slots),
    )


def load_template(package: Package) -> ChatTemplate | None:
    manifest = package.manifest
    if manifest.chat_template is None:
        return None
    source = package.file(manifest.chat_template).read_text(encoding="utf-8")
    return ChatTemplate(source, **manifest.special_tokens)


def slot_context(package: Package, options: EngineOptions) -> int:
    """Tokens a slot holds: what was asked for, at most what the package's tables reach."""
    most = package.manifest.target.context_length
    if options.context is not None and options.context > most:
        raise UserError(
            f"context {options.context} exceeds the package's {most} tokens.",
            code="invalid_setting",
            param="context",
        )
    return options.context or most
