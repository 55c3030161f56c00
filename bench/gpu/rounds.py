"""Parts `overhead`, `acceptance` and `demo`: whole engines on the device."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from bench.gpu.packages import DRAFT_KIND
from bench.gpu.site import Outcome, Site
from bench.report import Promise, Table, milliseconds, none_of, number
from gateway.engine.engine import Engine
from gateway.engine.options import EngineOptions
from gateway.engine.requests import Delta, Finished, GenerationRequest, Speculation, Timings
from models.package import Package, load_package
from models.providers import DEFAULT_OPTIONS, DeviceOptions

OVERHEAD_MS = 0.3
"""Promised of a round at one stream, outside its runs."""

_OFF = Speculation(drafter="off", policy="off")
_LENGTHS = (2, 4)
_ALPHAS = (0.5, 0.7, 0.9)
_TEXTS = (
    "Write a short story about a lighthouse keeper.",
    "Explain how a hash table works, then write one in Python.",
    "Repeat this list three times: apple, pear, plum, cherry.",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    ids: tuple[int, ...]
    timings: Timings


async def ask(engine: Engine, prompt: Sequence[int], **fields: Any) -> Said:
    request = GenerationRequest(tuple(prompt), ignore_eos=True, **fields)
    ids: list[int] = []
    async with engine.open(request) as generation:
        async for event in generation:
            if isinstance(event, Delta):
                ids += event.ids
            elif isinstance(event, Finished):
                return Said(tuple(ids), event.timings)
    raise AssertionError("an answer ends")


def with_engine(
    site: Site,
    package: Package,
    work: Callable[[Engine], Awaitable[Outcome]],
    use: DeviceOptions = DEFAULT_OPTIONS,
    drafter: str = "off",
) -> Outcome:
    async def run() -> Outcome:
        options = EngineOptions(slots=2, context=_context(package), drafter=drafter)
        engine = await Engine.start(package, options, recalibrate=True, provider=site.provider(use))
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def _context(package: Package) -> int:
    return min(1024, package.manifest.target.context_length)


def overhead(site: Site) -> Outcome:
    """A stream alone, of a model whose runs take next to nothing, and of the small one."""
    figures: dict[str, Any] = {}
    checks = []
    for name in ("tiny", "135m"):
        outcome = with_engine(site, site.package(name, "fp16"), _overhead)
        figures[name] = dict(outcome.figures)
        if name == "tiny":
            measured = outcome.figures["overhead_ms"]
            # Where the processor plays the GPU, the host's work waits for it.
            real = site.device == "cuda"
            promise = Promise("a round outside its runs", measured, "<=", OVERHEAD_MS, "ms")
            checks.append(replace(promise, applies=real))
        eager = outcome.figures["eager_in_rounds"]
        checks.append(none_of(f"{name}: rounds that were no replay", eager))
    return Outcome(figures, checks)


async def _overhead(engine: Engine) -> Outcome:
    prompt = tuple(range(3, 35))
    await ask(engine, prompt, max_tokens=16, speculation=_OFF)
    before = engine.status().graphs
    said = await ask(engine, prompt, max_tokens=120, speculation=_OFF)
    status = engine.status()
    assert before is not None, "a device counts its runs"
    assert status.graphs is not None, "a device counts its runs"
    eager = sum(status.graphs.eager.values()) - sum(before.eager.values())
    return Outcome(
        {
            "overhead_ms": status.costs.overhead_ms,
            "tpot_ms": said.timings.tpot_ms,
            "run_ms": said.timings.verify_ms / max(1, said.timings.rounds),
            "replays": status.graphs.replayed - before.replayed,
            # The prompt's own run is none.
            "eager_in_rounds": max(0, eager - 1),
        }
    )


def acceptance(site: Site) -> Outcome:
    """Speed-up of a draft model by imposed acceptance and length, the text meaning nothing."""
    return with_engine(site, site.package("135m", "fp16"), _acceptance, drafter=DRAFT_KIND)


async def _acceptance(engine: Engine) -> Outcome:
    prompt, rows, figures = tuple(range(3, 35)), [], dict[str, Any]()
    tokens = 64
    await ask(engine, prompt, max_tokens=tokens, speculation=_OFF)
    for length in _LENGTHS:
        for alpha in _ALPHAS:
            plain = await ask(engine, prompt, max_tokens=tokens, speculation=_OFF)
            speculation = Speculation(
                drafter=DRAFT_KIND,
                policy="fixed",
                length=length,
                rule="synthetic",
                acceptance=alpha,
            )
            said = await ask(engine, prompt, max_tokens=tokens, speculation=speculation)
            assert said.timings.tpot_ms is not None
            assert plain.timings.tpot_ms is not None
            gain = plain.timings.tpot_ms / said.timings.tpot_ms
            figures[f"{length} tokens, {alpha}"] = {
                "plain_ms": plain.timings.tpot_ms,
                "ms": said.timings.tpot_ms,
                "tau": said.timings.tau,
                "speed_up": gain,
            }
            rows.append(
                (
                    f"{length} at {alpha}",
                    number(said.timings.tau),
                    milliseconds(plain.timings.tpot_ms),
                    milliseconds(said.timings.tpot_ms),
                    number(gain),
                )
            )
    problems = [each.problem for each in engine.status().drafters if each.problem]
    header = ("drafted", "tau", "plain ms a token", "ms a token", "speed-up")
    return Outcome(
        figures,
        [none_of("drafters that failed", len(problems), "; ".join(problems))],
        [Table("Speed-up by imposed acceptance", header, rows)],
    )


def demo(site: Site) -> Outcome:
    """The real model: what it says with speculation and without, and how fast."""
    if site.demo is None:
        return Outcome({}, notes=["no package of a real model was carried (--demo DIR)"])
    package = load_package(site.demo)
    return with_engine(site, package, _demo, drafter="auto")


async def _demo(engine: Engine) -> Outcome:
    rows, figures, different = [], dict[str, Any](), 0
    assert engine.template is not None, "a chat model"
    for text in _TEXTS:
        written = engine.template.render([{"role": "user", "content": text}])
        prompt = engine.tokenizer.encode(written)
        plain = await ask(engine, prompt, max_tokens=96, speculation=_OFF)
        said = await ask(engine, prompt, max_tokens=96)
        same = _common(plain.ids, said.ids)
        different += same < len(plain.ids)
        figures[text] = {
            "same_tokens": same,
            "tokens": len(plain.ids),
            "plain_ms": plain.timings.tpot_ms,
            "ms": said.timings.tpot_ms,
            "tau": said.timings.tau,
            "alpha": said.timings.alpha,
        }
        rows.append(
            (
                text[:32],
                f"{same}/{len(plain.ids)}",
                milliseconds(plain.timings.tpot_ms),
                milliseconds(said.timings.tpot_ms),
                number(said.timings.tau),
            )
        )
    status = engine.status()
    figures["graphs"] = None if status.graphs is None else dataclasses.asdict(status.graphs)
    figures["exact"] = status.exact
    header = ("prompt", "same tokens", "plain ms a token", "ms a token", "tau")
    note = "near ties may turn: the width of a run is not always the same"
    checks = [Promise("answers that differ", float(different), "<=", float(len(_TEXTS)), note=note)]
    return Outcome(figures, checks, [Table("The real model", header, rows)])


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    for place, (one, two) in enumerate(zip(first, second, strict=False)):
        if one != two:
            return place
    return min(len(first), len(second))
