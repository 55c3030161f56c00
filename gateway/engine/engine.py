"""The engine: a loaded package that generates answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gateway.engine.background import BackgroundLoads
from gateway.engine.beforehand import load_beforehand
from gateway.engine.checks import check_request
from gateway.engine.choices import SharedPrompt, of_choice
from gateway.engine.closing import closing
from gateway.engine.constraints import Constraints
from gateway.engine.costs.cache import Calibrated
from gateway.engine.costs.limits import RunLimits
from gateway.engine.costs.run_costs import RunCosts
from gateway.engine.costs.streams import Streams
from gateway.engine.device_turns import DeviceTurns
from gateway.engine.draft_calibration import calibration_slot
from gateway.engine.drafters import Drafters
from gateway.engine.generation import Generation
from gateway.engine.learned import Learned
from gateway.engine.loading import Report, load, load_template, slot_context
from gateway.engine.names import AUTO, JOIN, NGRAM, OFF, predicting
from gateway.engine.ngram_opening import open_store
from gateway.engine.observer import UNOBSERVED, Observer
from gateway.engine.options import EngineOptions
from gateway.engine.predictions import read, with_room
from gateway.engine.pulse import Pulse
from gateway.engine.requests import GenerationRequest, Speculation
from gateway.engine.service import ModelService
from gateway.engine.slot_queue import SlotQueue
from gateway.engine.status import EngineStatus, cost_status
from gateway.engine.tree_graphs import TreeGraphs
from gateway.engine.worker import Worker, on_device
from models.capture import GraphStatus, total
from models.constraints.compiler import GrammarCompiler
from models.constraints.guide import Guide
from models.constraints.source import ConstraintSource
from models.constraints.trial import QUICK, Trial
from models.drafters.cascade import Cascade
from models.drafters.store import CONTEXT
from models.memory import MemoryNeed
from models.package import Package
from models.probe import ProbeResult
from models.providers import Provider
from models.sampling.parameters import Sampling
from models.sampling.sampler import Sampler
from models.slots import Lease, Slot, SlotPool
from models.target import Target
from models.tokenizer import Tokenizer


class Engine:
    """Runs requests on one package. Made by `start`; lives on one event loop."""

    def __init__(
        self,
        package: Package,
        options: EngineOptions,
        target: Target,
        pool: SlotPool,
        probed: ProbeResult,
        calibrated: Calibrated,
        memory: MemoryNeed,
        learned: Learned | None = None,
        observer: Observer = UNOBSERVED,
        turns: DeviceTurns | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.package = package
        self.pulse = Pulse()
        self._turns = turns or DeviceTurns()
        self.observer = observer
        self.options = options
        self.memory = memory
        self.calibrated = calibrated
        limits = RunLimits(target.strict_width, target.fast_tokens)
        self.costs = RunCosts(calibrated.calibration.coefficients(), limits)
        self.streams = Streams()
        self.probed = probed
        self.device = target.provider.device
        self.tokenizer = Tokenizer.load(package.file(package.manifest.tokenizer))
        self.template = load_template(package)
        self.eos_ids = frozenset(package.manifest.target.eos_ids)
        self.service = ModelService(
            on_device(target.run),
            target.most_rows,
            overlap=not target.provider.on_host,
            apart=target.provider.captures,
            costs=self.costs,
            pulse=self.pulse,
            turns=self._turns,
            worker=worker,
        )
        self.context_length = slot_context(package, options)
        self._target = target
        self._pool = pool
        self._queue = SlotQueue(
            pool, self.service, on_device(target.compact), options.queue, options.queue_seconds
        )
        self._loads = BackgroundLoads()
        self.drafters = Drafters(
            learned, self.service, self._loads, on_device(partial(calibration_slot, target))
        )
        self.ngrams = open_store(package, options)
        vocab_size = package.manifest.target.vocab_size
        self._trees = TreeGraphs(target, self.service, self._loads, vocab_size, self._also_probed)
        compiler = GrammarCompiler(self.tokenizer, vocab_size, self.eos_ids, Trial(), Trial(QUICK))
        self.constraints = Constraints(compiler)
        self._automatic = AUTO
        self._orders = 0
        self._draining = False

    @classmethod
    async def start(
        cls,
        package: Package,
        options: EngineOptions,
        report: Report | None = None,
        *,
        recalibrate: bool = False,
        observer: Observer = UNOBSERVED,
        turns: DeviceTurns | None = None,
        provider: Provider | None = None,
    ) -> Engine:
        """Load, probe and calibrate; with `recalibrate` whatever is kept of earlier starts, and on
        `provider` where one is given.

        `turns` are shared with the other engines of its device. Raises `UserError` when the package
        cannot run here.
        """
        report = report or (lambda line: None)
        # What a device captures while it is loaded belongs to the thread that will run it.
        worker = Worker("target")
        loading = partial(
            load, package, options, report, recalibrate=recalibrate, provider=provider
        )
        try:
            loaded = await worker.submit(loading)
            engine = cls(
                package,
                options,
                loaded.target,
                loaded.pool,
                loaded.probed,
                loaded.calibrated,
                loaded.memory,
                loaded.learned,
                observer,
                turns,
                worker,
            )
        except BaseException:
            worker.leave()
            raise
        try:
            engine._automatic = await load_beforehand(
                options,
                engine.constraints,
                engine._trees,
                engine.drafters,
                loaded.target.provider,
                report,
            )
        except BaseException:
            await engine.close()
            raise
        engine._loads.limit()
        return engine

    @property
    def exact(self) -> bool:
        """Bitwise row independence, as measured when the package was loaded."""
        return self.probed.exact

    def open(self, request: GenerationRequest) -> Generation:
        """A generation for `request`, which must be entered at once.

        Raises `UserError`: `context_length_exceeded`, `queue_full`, `draining`,
        `unknown_drafter`, `invalid_prompt`, `unsupported_value`.
        """
        (generation,) = self.open_choices(request, 1)
        return generation

    def open_choices(self, request: GenerationRequest, n: int) -> list[Generation]:
        """`n` answers to one prompt, each with a seed of its own; all must be entered at once.

        The first prefills the prompt; the others wait for that, without a slot, and copy its K/V.
        They answer whatever becomes of it. Raises what `open` does.
        """
        self._check(request, n)
        request = replace(
            request,
            sampling=self._sampling(request).with_seed(),
            speculation=self._resolved(request.speculation, request.prediction is not None),
        )
        prompt = SharedPrompt()
        return [Generation(of_choice(request, index), self, prompt, index) for index in range(n)]

    def _sampling(self, request: GenerationRequest) -> Sampling:
        if request.named is None:
            return request.sampling
        named = request.named
        if request.constraint is not None:
            # What a form or a call repeats is in the prompt, and is to be repeated.
            named |= {"repetition_penalty"}
        return request.sampling.advised(self.package.manifest.sampling, named)

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
            waiting=self._queue.waiting,
            memory_bytes=self.memory.total,
            run_ms=self.costs.table(),
            costs=cost_status(self.costs, self.calibrated),
            drafter=self._resolved(Speculation(self.options.drafter)).drafter,
            drafters=self.drafters.status(),
            graphs=self._graph_status(),
        )

    def _graph_status(self) -> GraphStatus | None:
        """How runs on a device ran; None on a host."""
        if self._target.provider.on_host:
            return None
        return total([*self._target.graph_counts, *self.drafters.graph_counts])

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self._draining = True

    def interrupt(self) -> None:
        """Have the device leave its present run, if it can; from any thread. Nothing is to be run
        behind that: the engine is to be closed."""
        self._turns.give_up(self.pulse)
        self._target.interrupt()

    async def close(self) -> None:
        """Refuse new requests and end the worker, and wait for what is being loaded. Whoever waits,
        and generations that still run, fail with `draining`."""
        self._draining = True
        self._queue.close()
        self._trees.close()
        self.drafters.close()
        await self.constraints.close()
        await self.service.close()
        await self._loads.close()
        if self.ngrams is not None:
            await self.ngrams.close()

    async def acquire(
        self, prompt: Sequence[int], reuse_prefix: bool, key: str | None = None
    ) -> Lease:
        return await self._queue.acquire(prompt, reuse_prefix, key)

    def release(self, slot: Slot) -> None:
        self._queue.release(slot)

    async def load_trees(self) -> None:
        """Have the graphs for trees loaded and probed, once; other requests go on meanwhile.

        Raises `UserError`: `out_of_memory`, after which the next request tries again,
        `device_error` where a load hangs, and `draining`.
        """
        await self._trees.load()

    def compact(self, slot: Slot, start: int, path: Sequence[int]) -> asyncio.Future[None]:
        return self._queue.compact(slot, start, path)

    def prefill_chunk(self) -> int:
        """Tokens of the next chunk of a prompt.

        In strict mode always the same, since other chunks are other kernels. Else, beside answers
        that stream, there is a `busy_chunk` for each prompt that waits: one alone
        hardly slows them, and many are not bound by the number of runs.
        """
        if not len(self.streams) or self._target.strict_width is not None:
            return self.options.prefill_chunk
        prompts = 1 + self.service.waiting_prefills
        return min(prompts * self.options.busy_chunk, self.options.prefill_chunk)

    def entering(self, change: int) -> None:
        self._queue.entering(change)

    def next_order(self) -> int:
        self._orders += 1
        return self._orders

    async def compile(self, constraint: ConstraintSource, key: str | None = None) -> None:
        """Have it at hand for the requests that follow, when it is the turn of `key`.

        Raises `UserError` that names its field."""
        await self.constraints.grammar(constraint, key)

    async def guide(self, constraint: ConstraintSource, key: str | None = None) -> Guide:
        return await self.constraints.guide(constraint, key)

    async def forget(self, user: str) -> None:
        """Delete what was said to `user`, in memory and on disk."""
        if self.ngrams is not None:
            await self.ngrams.forget(user)

    def make_drafters(self, request: GenerationRequest, slot: Slot, sampler: Sampler) -> Cascade:
        texts = None
        if self.ngrams is not None and request.user is not None:
            texts = self.ngrams.texts(request.user)
        predicted = None if request.prediction is None else request.prediction.made
        return self.drafters.make(request.speculation, slot, sampler, texts, predicted)

    async def read_prediction(self, request: GenerationRequest) -> None:
        """Have what is predicted at hand."""
        if request.prediction is not None:
            await read(request.prediction, self.tokenizer, self.context_length)

    async def recall(self, request: GenerationRequest) -> None:
        """Have what was said to the same user before at hand."""
        if self.ngrams is not None and request.user is not None:
            await self.ngrams.load(request.user)

    def remember(self, request: GenerationRequest, answer: Sequence[int]) -> None:
        """Keep what was said for the same user's next requests, if they draft by n-grams."""
        names = request.speculation.drafter.split(JOIN)
        if self.ngrams is not None and request.user is not None and NGRAM in names and answer:
            self.ngrams.add(request.user, (*request.prompt[-CONTEXT:], *answer))

    def _resolved(self, speculation: Speculation, predicted: bool = False) -> Speculation:
        """With the drafters that are meant by its `drafter`."""
        name = self._automatic if speculation.drafter == AUTO else speculation.drafter
        names = predicting(self.drafters.resolve(name), predicted=predicted)
        return with_room(replace(speculation, drafter=JOIN.join(names) or OFF))

    def _also_probed(self, found: ProbeResult) -> None:
        self.probed = self.probed.also(found)

    def _check(self, request: GenerationRequest, n: int) -> None:
        if self._draining:
            raise closing()
        check_request(
            request,
            vocab_size=self.package.manifest.target.vocab_size,
            context=self.context_length,
            has_trees=self._target.has_trees,
            kinds=self.drafters.kinds,
        )
        self._queue.require_room(n)
