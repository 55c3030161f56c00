"""Part `tensorrt`: the standard lowering there, in both forms, against the contrib one."""

from __future__ import annotations

import time
from typing import Any

from bench.gpu.packages import APART, FUSED
from bench.gpu.site import Outcome, Site, least_ms
from bench.gpu.tokens import PROMPT, first_ids, in_parts, largest_difference, prefill, random_tokens
from bench.report import Promise, Table, milliseconds, number
from models.capture import total
from models.errors import UserError
from models.package import Package
from models.providers import DeviceOptions, Provider
from models.rows import Row
from models.target import Target

WIDTHS = (2, 8)
_SAID = 24
_CONTEXT = 256
_NEAR = 0.02
_SHAPE = "135m"


def run(site: Site) -> Outcome:
    provider = site.tensorrt()
    if provider is None:
        return Outcome({}, notes=["TensorRT is not here, or ONNX Runtime was built without it"])
    expected = _said(Target(site.package(_SHAPE, "fp16", rows=(1,)), _eager(site)))
    figures: dict[str, Any] = {}
    checks, rows = [], []
    for form in (APART, FUSED):
        package = site.package(_SHAPE, "fp16", rows=(1,), form=form)
        try:
            found = _measured(package, provider, site, expected)
        except UserError as error:
            figures[form] = {"failed": error.message}
            rows.append((form, "-", "-", "-", error.message[:120]))
            continue
        figures[form] = found
        elsewhere = "; ".join(found["elsewhere"]) or "nothing"
        times = " ".join(milliseconds(ms) for ms in found["ms"].values())
        rows.append(
            (form, number(found["difference"], 5), times, number(found["load_s"], 1), elsewhere)
        )
        checks.append(Promise(f"{form}: difference from contrib", found["difference"], "<=", _NEAR))
    worked = sum("failed" not in each for each in figures.values())
    checks.append(Promise("forms that run", float(worked), ">=", 1.0))
    widths = ", ".join(map(str, WIDTHS))
    header = ("attention", "difference", f"ms at {widths}", "s to build", "left to others")
    return Outcome(figures, checks, [Table("TensorRT", header, rows)])


def _eager(site: Site) -> Provider:
    return site.provider(DeviceOptions(graphs=False))


def _said(target: Target) -> list[Any]:
    (slot,) = target.make_slots(1, _CONTEXT)
    tokens = random_tokens(target, PROMPT + _SAID)
    prefill(target, slot, tokens[:PROMPT])
    return in_parts(target, slot, tokens[PROMPT:], max(WIDTHS))


def _measured(
    package: Package, provider: Provider, site: Site, expected: list[Any]
) -> dict[str, Any]:
    started = time.monotonic()
    target = Target(package, provider)
    said = _said(target)
    load_s = time.monotonic() - started
    (slot,) = target.make_slots(1, _CONTEXT)
    prefill(target, slot, random_tokens(target, PROMPT))
    times = {}
    for width in WIDTHS:
        row = Row(slot, (5,) * width, logits=width)
        times[str(width)] = least_ms(lambda row=row: target.run([row]), site.repeats)  # type: ignore[misc]
    return {
        "difference": largest_difference(said, expected),
        "agreement": float((first_ids(said) == first_ids(expected)).mean()),
        "ms": times,
        "load_s": load_s,
        "elsewhere": list(total(target.graph_counts).elsewhere),
    }
