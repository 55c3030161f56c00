"""The learned drafters of a package: loaded once, shared by all requests."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from models.capture import GraphCounts
from models.draft import Drafter
from models.drafters.calibration import Calibration
from models.drafters.drawing import Drawing
from models.drafters.graphs import DrafterGraphs
from models.drafters.medusa import MedusaDrafter
from models.drafters.model import DrafterModel
from models.drafters.recurrent import RecurrentDrafter, RecurrentTreeDrafter
from models.drafters.self_speculative import SelfSpeculativeDrafter
from models.initializers import SharedWeights
from models.memory import require_drafter_memory
from models.package import DrafterSpec, Package, require_unchanged, vocabulary_file
from models.providers import Provider
from models.runs import Runs
from models.sampling.noise import counters
from models.sampling.sampler import Sampler
from models.slots import Slot


class LearnedModels:
    """Makes drafters for requests; loads each kind's graphs when it is first wanted. `weights` and
    `runs` are shared with the target. Without `check_memory` they are loaded whether or not they
    seem to fit."""

    def __init__(
        self,
        package: Package,
        provider: Provider,
        threads: int | None = None,
        weights: SharedWeights | None = None,
        runs: Runs | None = None,
        *,
        check_memory: bool = True,
    ) -> None:
        self._package = package
        self._check_memory = check_memory
        self._weights = weights
        self._runs = runs
        self._provider = provider
        self._threads = threads
        self._specs = {spec.kind: spec for spec in package.manifest.drafters}
        self._models: dict[str, DrafterModel] = {}
        self._loading = threading.Lock()

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._specs)

    def spec(self, kind: str) -> DrafterSpec:
        return self._specs[kind]

    def drafts_trees(self, kind: str) -> bool:
        """Whether drafts of this kind can branch."""
        return kind == "medusa" or bool(self._specs[kind].tree_graphs)

    @property
    def graph_counts(self) -> list[GraphCounts]:
        """How runs on a device ran, by session."""
        return [each for model in list(self._models.values()) for each in model.graphs.graph_counts]

    def loaded(self, kind: str) -> bool:
        return kind in self._models

    def load(self, kind: str) -> None:
        """Load what drafts of this kind need, once; in any thread, also while others draft.

        Raises `UserError` (`out_of_memory`) where it does not fit, or `package_changed`.
        """
        with self._loading:
            if kind in self._models:
                return
            require_unchanged(self._package)
            spec = self._specs[kind]
            if self._check_memory:
                require_drafter_memory(self._package, spec, self._provider.use)
            self._models[kind] = DrafterModel(
                spec=spec,
                kv_type=self._package.manifest.target.kv_type,
                graphs=DrafterGraphs(
                    self._package, spec, self._provider, self._threads, self._weights, self._runs
                ),
                calibration=Calibration(spec.survival),
                vocabulary=counters(self._vocabulary(spec)),
            )

    def drafter(
        self,
        kind: str,
        slot: Slot,
        sampler: Sampler | None,
        *,
        shared: bool,
        branches: int = 1,
    ) -> Drafter:
        """A drafter for the request that holds `slot`; `load` comes before.

        Where a request samples, chains are drawn: with the target's own noise if it is `shared`
        (the coupled rule), with other noise else. Up to `branches` > 1 tokens behind one make a
        tree, where the package's drafter can; its tokens are the likeliest.
        """
        model = self._models[kind]
        drawing = None
        if sampler is not None and not sampler.sampling.greedy:
            drawing = Drawing(
                sampler.sampling, sampler.seed, shared=shared, listed=model.spec.top_k
            )
        if kind == "medusa":
            return MedusaDrafter(model, slot, drawing, branches)
        if kind == "self-speculative":
            return SelfSpeculativeDrafter(model, slot, drawing)
        if branches > 1 and model.graphs.depths:
            return RecurrentTreeDrafter(model, slot, drawing, branches)
        return RecurrentDrafter(model, slot, drawing)

    def _vocabulary(self, spec: DrafterSpec) -> NDArray[np.int64]:
        """The target's ids of the tokens that a drafter can propose, in the drafter's order."""
        name = vocabulary_file(spec.kind)
        if name not in self._package.manifest.files:
            return np.arange(spec.draft_vocab)
        ids: NDArray[np.int64] = np.load(self._package.file(name))
        assert ids.shape == (spec.draft_vocab,), name
        return ids
