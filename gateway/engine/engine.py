"""The engine: a loaded package that generates answers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway.engine.costs import CALIBRATION_WIDTHS, RunCosts
from gateway.engine.generation import Generation
from gateway.engine.options import EngineOptions
from gateway.engine.requests import GenerationRequest
from gateway.engine.service import TargetService
from models.chat_template import ChatTemplate
from models.draft import Drafter
from models.drafters.ngram import NgramDrafter
from models.errors import UserError
from models.memory import MemoryNeed, memory_need, require_memory
from models.package import Package
from models.probe import ProbeResult, probe
from models.processor import has_integer_dot_product
from models.providers import select_provider
from models.slots import Lease, Slot, SlotPool
from models.target import Row, Target
from models.tokenizer import Tokenizer

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A snapshot of what an engine is doing."""

    model: str
    device: str
    exact: bool
    differences: tuple[str, ...]
    slots: int
    free_slots: int
    kv_tokens: int
    running: int
    waiting: int
    memory_bytes: int
    run_ms: dict[int, float]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A request without a slot; its future gets the lease and the completion of its copy."""

    request: GenerationRequest
    future: asyncio.Future[tuple[Lease, asyncio.Future[None]]]


class Engine:
    """Runs requests on one package. Made by `start`; lives on one event loop."""

    def __init__(
        self,
        package: Package,
        options: EngineOptions,
        target: Target,
        pool: SlotPool,
        probed: ProbeResult,
        costs: RunCosts,
        memory: MemoryNeed,
    ) -> None:
        self.package = package
        self.options = options
        self.memory = memory
        self.costs = costs
        self.probed = probed
        self.device = target.provider.device
        self.tokenizer = Tokenizer.load(package.file(package.manifest.tokenizer))
        self.template = _load_template(package)
        self.eos_ids = frozenset(package.manifest.target.eos_ids)
        self.service = TargetService(target.run, target.most_rows)
        self.context_length = slot_context(package, options)
        self._pool = pool
        self._waiters: deque[_Waiter] = deque()
        self._orders = 0
        self._entering = 0
        self._streams = 0
        self._draining = False

    @classmethod
    async def start(
        cls, package: Package, options: EngineOptions, report: Report | None = None
    ) -> Engine:
        """Load, probe and calibrate. Raises `UserError` when the package cannot run here."""
        load = asyncio.to_thread(_load, package, options, report or (lambda line: None))
        target, pool, probed, costs, memory = await load
        return cls(package, options, target, pool, probed, costs, memory)

    @property
    def exact(self) -> bool:
        """Bitwise row independence, as measured when the package was loaded."""
        return self.probed.exact

    def open(self, request: GenerationRequest) -> Generation:
        """A generation for `request`, which must be entered at once.

        Raises `UserError`: `context_length_exceeded`, `queue_full`, `draining`,
        `unknown_drafter`, `invalid_prompt`, `unsupported_value`.
        """
        self._check(request)
        return Generation(request, self)

    def status(self) -> EngineStatus:
        return EngineStatus(
            model=self.package.manifest.name,
            device=self.device,
            exact=self.exact,
            differences=self.probed.differences,
            slots=self._pool.total,
            free_slots=self._pool.free,
            kv_tokens=self._pool.used_tokens,
            running=self._pool.total - self._pool.free,
            waiting=len(self._waiters),
            memory_bytes=self.memory.total,
            run_ms=self.costs.table(),
        )

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self._draining = True

    async def close(self) -> None:
        """Refuse new requests and end the worker. Generations that still run fail (`draining`)."""
        self._draining = True
        await self.service.close()

    async def acquire(self, request: GenerationRequest) -> Lease:
        """A slot for `request`, in order of arrival, its copied prefix in place."""
        lease = None if self._waiters else self._pool.acquire(request.prompt, request.reuse_prefix)
        if lease is None:
            return await self._wait_for_slot(request)
        return await self._until_filled(lease, self._fill(lease))

    async def _wait_for_slot(self, request: GenerationRequest) -> Lease:
        self._require_queue_room()
        waiter = _Waiter(request, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            lease, filled = await waiter.future
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.future.done() and not waiter.future.cancelled():
                self.release(waiter.future.result()[0].slot)
            raise
        return await self._until_filled(lease, filled)

    async def _until_filled(self, lease: Lease, filled: asyncio.Future[None]) -> Lease:
        try:
            # The slot counts the copied tokens already, so a cancelled request's copy goes on.
            await asyncio.shield(filled)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                lease.slot.truncate(0)
            self.release(lease.slot)
            raise
        return lease

    def release(self, slot: Slot) -> None:
        """Take `slot` back and hand it to whoever waits longest."""
        self._pool.release(slot)
        while self._waiters:
            waiter = self._waiters.popleft()
            if waiter.future.done():
                continue
            lease = self._pool.acquire(waiter.request.prompt, waiter.request.reuse_prefix)
            assert lease is not None, "a slot was released just now"
            # The copy is queued here, before anybody can be given its source to write to.
            waiter.future.set_result((lease, self._fill(lease)))
            return

    def _fill(self, lease: Lease) -> asyncio.Future[None]:
        if lease.source is not None:
            return self.service.call(lease.fill)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def prefill_chunk(self) -> int:
        return self.options.busy_chunk if self._streams else self.options.prefill_chunk

    def other_streams(self) -> int:
        return max(0, self._streams - 1)

    def entering(self, change: int) -> None:
        """Generations that were entered and have not asked for their slot yet."""
        self._entering += change

    def streaming(self, change: int) -> None:
        self._streams += change

    def next_order(self) -> int:
        self._orders += 1
        return self._orders

    def make_drafter(self, name: str) -> Drafter:
        assert name == "ngram", "checked when the request was opened"
        return NgramDrafter()

    def _check(self, request: GenerationRequest) -> None:
        if self._draining:
            raise UserError("the gateway is shutting down; try again later.", code="draining")
        self._check_prompt(request.prompt)
        _check_limits(request)
        if request.speculation.drafter not in ("ngram", "off"):
            raise UserError(
                f"unknown drafter {request.speculation.drafter!r}; this package has: ngram, off.",
                code="unknown_drafter",
                param="speculation.drafter",
            )
        # Requests that arrive in one step of the loop must see each other.
        if self._pool.free <= self._entering:
            self._require_queue_room(self._entering - self._pool.free)

    def _check_prompt(self, prompt: tuple[int, ...]) -> None:
        if not prompt:
            raise UserError("the prompt is empty; give at least one token.", code="invalid_prompt")
        if len(prompt) >= self.context_length:
            raise UserError(
                f"the prompt has {len(prompt)} tokens; the context holds {self.context_length},"
                " one of them for the answer. Shorten the input.",
                code="context_length_exceeded",
                param="input",
            )
        if not 0 <= min(prompt) <= max(prompt) < self.package.manifest.target.vocab_size:
            raise UserError(
                "the prompt has token ids outside the vocabulary.", code="invalid_prompt"
            )

    def _require_queue_room(self, ahead: int = 0) -> None:
        waiting = len(self._waiters) + ahead
        if waiting >= self.options.queue:
            raise UserError(
                f"{self._pool.total} requests are running and {waiting} are waiting;"
                " the queue is full. Try again shortly.",
                code="queue_full",
            )


def _check_limits(request: GenerationRequest) -> None:
    for param, value, least in (
        ("max_tokens", request.max_tokens, 0),
        ("prefill_chunk", request.prefill_chunk, 1),
        ("speculation.length", request.speculation.length, 0),
    ):
        if value is not None and value < least:
            raise UserError(
                f"{param} must be at least {least}, not {value}.",
                code="unsupported_value",
                param=param,
            )


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


def _load_template(package: Package) -> ChatTemplate | None:
    manifest = package.manifest
    if manifest.chat_template is None:
        return None
    source = package.file(manifest.chat_template).read_text(encoding="utf-8")
    return ChatTemplate(source, **manifest.special_tokens)


Loaded = tuple[Target, SlotPool, ProbeResult, RunCosts, MemoryNeed]


def _load(package: Package, options: EngineOptions, report: Report) -> Loaded:
    context = slot_context(package, options)
    spec = package.manifest.target
    provider = select_provider(options.device, spec.device)
    if spec.integer_form == "u8s8" and not has_integer_dot_product():
        raise UserError(
            "the package's integer products (u8s8) need a processor with VNNI or AMX; without"
            " them they overflow silently. Export it again on this machine.",
            code="processor_unsuitable",
            param="package",
        )
    need = memory_need(package, options.slots, context, options.prefill_chunk)
    report(f"memory needed: {need.describe()}")
    require_memory(need)
    target = Target(package, provider, options.threads)
    slots = target.make_slots(options.slots, context)
    report(f"graphs loaded for {target.most_rows} rows on {provider.device}")
    probed = probe(target, slots, spec.vocab_size)
    report("bitwise row-independent" if probed.exact else f"not exact: {probed.differences}")
    costs = RunCosts(measure_costs(target, slots[0]))
    pool = SlotPool(slots, can_copy=provider.memory == "cpu")
    return target, pool, probed, costs, need


def measure_costs(target: Target, slot: Slot, repeats: int = 3) -> dict[int, float]:
    """Milliseconds of a run by width, the least of `repeats` rounds over all widths."""
    widths = [width for width in CALIBRATION_WIDTHS if width <= slot.context]
    costs = dict.fromkeys(widths, float("inf"))
    for _ in range(repeats):
        for width in widths:
            started = time.perf_counter()
            target.run([Row(slot, (0,) * width, logits=width)])
            costs[width] = min(costs[width], (time.perf_counter() - started) * 1e3)
    return costs
