"""The drafters of an engine: which there are, loading them, and what is known of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gateway.engine.background import BackgroundLoads
from gateway.engine.closing import closing, outcome_of
from gateway.engine.costs.draft_costs import DraftCosts
from gateway.engine.draft_calibration import measure_chains
from gateway.engine.learned import Learned
from gateway.engine.names import JOIN, NGRAM, PREDICTION, resolve
from gateway.engine.policies.base import Probation
from gateway.engine.requests import DrafterTimings, Rule, Speculation
from gateway.engine.service import ModelService
from gateway.engine.status import DrafterStatus
from models.capture import GraphCounts
from models.draft import Draft, Drafter
from models.drafters.cascade import Cascade
from models.drafters.ngram import NgramDrafter
from models.drafters.predicted import PredictedText
from models.drafters.prediction import PredictionDrafter
from models.drafters.store import StoreDrafter, Texts
from models.drafters.survival import Published, Survival
from models.errors import UserError
from models.package import DrafterSpec
from models.sampling.sampler import Sampler
from models.slots import Slot

log = logging.getLogger(__name__)

SUSPICIOUS = 1000
"""Draft tokens of which no drafter gets every one right."""

# A prior of this many outcomes against a request's own, and how fast old outcomes fade: a text
# changes within tens of rounds, a workload within hundreds.
_REQUEST_WEIGHT, _REQUEST_MEMORY = 4.0, 0.9
_ENGINE_WEIGHT, _ENGINE_MEMORY = 20.0, 0.995

# Rules under which a drafter draws its tokens: the others judge them by the target alone.
_DRAWING = ("coupled", "classic", "adasd")
_BY_PROPOSALS = ("classic", "adasd")


class Drafters:
    """Made by an engine; lives on its event loop.

    `calibration_slot` makes a slot that chains are measured on; it is called on the service's
    worker, in a run's place.
    """

    def __init__(
        self,
        learned: Learned | None,
        service: ModelService,
        loads: BackgroundLoads,
        calibration_slot: Callable[[], Slot],
    ) -> None:
        self._learned = learned
        self._service = service
        self._loads = loads
        self._calibration_slot = calibration_slot
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._loaded: set[str] = set()
        self._survivals: dict[tuple[str, bool, bool, Rule], Survival] = {}
        self._costs: dict[tuple[str, bool], DraftCosts] = {}
        self._probations: dict[tuple[str, bool], Probation] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        self._failures: dict[str, int] = {}
        self._problems: dict[str, str] = {}
        self._closed = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The package's learned drafters."""
        return self._learned.kinds if self._learned is not None else ()

    def resolve(self, name: str) -> tuple[str, ...]:
        """The drafters that a request means. Raises `UserError` `unknown_drafter`."""
        return resolve(name, self.kinds)

    def spec(self, name: str) -> DrafterSpec | None:
        """What the package says of the drafter; None where it is none of the package's."""
        learned = self._learned
        return learned.spec(name) if learned is not None and name in learned.kinds else None

    def drafts_trees(self, name: str) -> bool:
        """Whether its drafts branch where a request allows that."""
        learned = self._learned
        return learned is None or name not in learned.kinds or learned.drafts_trees(name)

    @property
    def graph_counts(self) -> list[GraphCounts]:
        """How runs on a device ran, by session."""
        return [] if self._learned is None else self._learned.graph_counts

    async def load(self, name: str) -> None:
        """Have the graphs of what `name` stands for loaded, once; other requests go on meanwhile.

        Raises `UserError` (`out_of_memory`) and `DeviceError`, after which the next request tries
        again, and `UserError`: `device_error` where a load hangs, and `draining`.
        """
        for kind in self.resolve(name):
            if kind in self.kinds and kind not in self._loaded:
                await self._load_once(kind)

    def close(self) -> None:
        """Give up what is being loaded; whoever waits for it is told so."""
        self._closed = True
        for task in self._loading.values():
            task.cancel()

    def make(
        self,
        speculation: Speculation,
        slot: Slot,
        sampler: Sampler,
        texts: Texts | None = None,
        predicted: PredictedText | None = None,
    ) -> Cascade:
        """The drafters of a request, whose name was resolved and whose graphs are loaded.

        `texts` are what was said to the same user before, `predicted` is what this answer is said
        to be.
        """
        branches = speculation.branches
        draws = speculation.rule in _DRAWING and branches == 1
        drafters: list[Drafter] = []
        for name in speculation.drafter.split(JOIN):
            if name == PREDICTION:
                assert predicted is not None, "read before the answer is drafted"
                drafters.append(PredictionDrafter(predicted))
            elif name == NGRAM:
                drafters.append(NgramDrafter(branches=branches))
                drafters += [StoreDrafter(texts)] if texts is not None else []
            else:
                drafter = self._learned_one(name, speculation, slot, sampler if draws else None)
                drafters += [] if drafter is None else [drafter]
        drafters = drafters or [NgramDrafter(branches=branches)]
        return self.combine(drafters, speculation, greedy=sampler.sampling.greedy)

    def _learned_one(
        self, name: str, speculation: Speculation, slot: Slot, sampler: Sampler | None
    ) -> Drafter | None:
        """None where it failed already: there was no memory for what it keeps of the slot."""
        assert self._learned is not None, "one of the package's drafters"
        try:
            return self._learned.drafter(
                name,
                slot,
                sampler,
                shared=speculation.rule == "coupled",
                branches=speculation.branches,
            )
        except Exception as error:
            self.note_failure(name, error)
            return None

    def combine(
        self, drafters: Sequence[Drafter], speculation: Speculation, *, greedy: bool
    ) -> Cascade:
        """`drafters` as one, with what is known of each when it drafts in this way."""
        branching, rule = speculation.branches > 1, speculation.rule

        def survival(name: str) -> Survival:
            prior = self.survival(name, branching=branching, greedy=greedy, rule=rule)
            return Survival(prior, _REQUEST_WEIGHT, _REQUEST_MEMORY, abrupt=True)

        return Cascade(
            drafters,
            survival,
            branches=speculation.branches,
            by_proposals=rule in _BY_PROPOSALS,
        )

    def survival(
        self, name: str, *, branching: bool = False, greedy: bool = True, rule: Rule = "coupled"
    ) -> Survival:
        """All requests' outcomes of drafts that are made and verified in this way."""
        key = (name, branching, greedy, rule)
        if key not in self._survivals:
            spec = self.spec(name)
            prior = Published(spec.survival if spec is not None else ())
            self._survivals[key] = Survival(prior, _ENGINE_WEIGHT, _ENGINE_MEMORY)
        return self._survivals[key]

    def costs(self, name: str, *, branching: bool) -> DraftCosts:
        """Trees are other graphs than chains."""
        return self._costs.setdefault((name, branching), DraftCosts())

    def probation(self, name: str, *, branching: bool) -> Probation:
        return self._probations.setdefault((name, branching), Probation())

    def count(self, by_drafter: Mapping[str, DrafterTimings]) -> None:
        """What an answer's drafts came to. A learned drafter of which everything is accepted, over
        so many tokens, does not draft but copy: its export is wrong."""
        for name, part in by_drafter.items():
            drafted, accepted = self._counts.get(name, (0, 0))
            drafted, accepted = drafted + part.draft_n, accepted + part.draft_n_accepted
            self._counts[name] = (drafted, accepted)
            if drafted == accepted >= SUSPICIOUS and name in self.kinds:
                if name not in self._problems:
                    log.warning("drafter %s: all %d tokens were accepted", name, drafted)
                self._problems[name] = f"all {drafted} tokens were accepted: is its export right?"

    def note_failure(self, name: str, error: Exception) -> None:
        if name not in self._failures:
            log.error("drafter %s failed; answers go on without it", name, exc_info=error)
        self._failures[name] = self._failures.get(name, 0) + 1
        self._problems[name] = str(error) or type(error).__name__

    def status(self) -> tuple[DrafterStatus, ...]:
        counts = self._counts.get(NGRAM, (0, 0))
        ngram = DrafterStatus(NGRAM, True, draft_n=counts[0], draft_n_accepted=counts[1])
        return (ngram, *(self._status(kind) for kind in self.kinds))

    def _status(self, kind: str) -> DrafterStatus:
        spec = self.spec(kind)
        assert spec is not None, "one of the package's drafters"
        drafted, accepted = self._counts.get(kind, (0, 0))
        return DrafterStatus(
            name=kind,
            loaded=kind in self._loaded,
            checkpoint=spec.checkpoint,
            reads=spec.reads,
            longest=spec.longest,
            draft_n=drafted,
            draft_n_accepted=accepted,
            survival=tuple(self.survival(kind).shares(spec.longest)),
            run_ms=self.costs(kind, branching=False).table(),
            failures=self._failures.get(kind, 0),
            problem=self._problems.get(kind),
        )

    async def _load_once(self, kind: str) -> None:
        if self._closed:
            raise closing()
        task = self._loading.get(kind)
        if task is None:
            task = asyncio.create_task(self._load(kind), name=f"drafter {kind}")
            self._loading[kind] = task
            task.add_done_callback(partial(self._load_ended, kind))
        await outcome_of(task)

    def _load_ended(self, kind: str, task: asyncio.Task[None]) -> None:
        del self._loading[kind]
        if not task.cancelled():
            task.exception()  # heard, also where nobody waits any more

    async def _load(self, kind: str) -> None:
        assert self._learned is not None, "one of the package's drafters"
        log.info("loading the graphs of drafter %s", kind)
        try:
            await self._loads(f"drafter {kind}", self._learned.load, kind)
        except UserError as error:
            self._problems[kind] = error.message
            raise
        self._problems.pop(kind, None)
        await self._calibrate(kind)
        self._loaded.add(kind)
        log.info("loaded the graphs of drafter %s", kind)

    async def _calibrate(self, kind: str) -> None:
        """Measure what its chains cost; where they fail, requests will see to it. A target that
        fails is not the drafter's doing."""
        assert self._learned is not None, "one of the package's drafters"
        learned, measured = self._learned, dict[int, float]()

        def measure() -> Draft:
            measured.update(measure_chains(learned, kind, slot))
            return Draft()

        # The slot is the target's, and the drafts are of the thread that drafts.
        slot = await self._service.turn(self._calibration_slot)
        try:
            await self._service.draft(slot, measure)
        except Exception as error:
            if self._service.closed:
                raise
            self.note_failure(kind, error)
            return
        self._costs[kind, False] = DraftCosts(measured)
