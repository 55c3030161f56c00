"""ONNX Runtime sessions with bindings that are kept between runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from models.assignment import RECORD, elsewhere
from models.binding import Binding
from models.capture import Captures
from models.device_binding import DeviceBinding
from models.errors import UserError
from models.initializers import SharedWeights
from models.processor import processor_count
from models.providers import Provider, load_onnxruntime
from models.runs import Runs

__all__ = ["Binding", "Session", "share_threads"]

_pools: dict[str, int] = {}
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def share_threads(threads: int | None) -> int:
    """Make all sessions of this process share one pool of `threads` (None: every processor).

    Sessions with pools of their own spin against each other on the same cores. ONNX Runtime
    fixes the pool when its environment is made, so the first call of a process decides; returns
    the number in force.
    """
    if "intra" not in _pools:
        wanted = threads or processor_count()
        load_onnxruntime().set_global_thread_pool_sizes(wanted, 1)
        _pools["intra"] = wanted
    return _pools["intra"]


class Session:
    """One graph on one provider. Must be run from one thread at a time.

    With `capture` its runs may be captured, where the provider does that. `weights` are those it
    shares with other sessions, `runs` those that are interrupted together with its own. `options`
    are the provider's for this session alone. What a device leaves to another provider is noted in
    its counts (`elsewhere`).
    """

    def __init__(
        self,
        graph: Path,
        provider: Provider,
        threads: int | None = None,
        *,
        capture: bool = False,
        weights: SharedWeights | None = None,
        runs: Runs | None = None,
        options: Mapping[str, str] = _NO_OPTIONS,
    ) -> None:
        share_threads(threads)
        self._options = options
        self.provider = provider
        self.captures = Captures()
        self._runs = runs or Runs()
        self.capturing = capture and provider.captures
        try:
            self._weights = {} if weights is None else weights.of(graph)
            self._session = self._load(graph)
        except Exception as error:
            raise UserError(
                f"ONNX Runtime cannot load {graph.name} on {provider.device}: {error}",
                code="graph_invalid",
                param=graph.name,
            ) from error
        self._require_provider(provider, graph)
        if not provider.on_host:
            self._note_elsewhere(graph)

    def _note_elsewhere(self, graph: Path) -> None:
        subgraphs = self._session.get_provider_graph_assignment_info()
        found = elsewhere(subgraphs, self.provider.onnxruntime_names[0])
        if found is not None:
            self.captures.counts.elsewhere.append(f"{graph.name}: {found}")

    def _load(self, graph: Path) -> Any:
        """With captures and shared weights, as far as ONNX Runtime does both; what it does not is
        noted, and seen. Raises what the plainest way raises."""
        refused = self.captures.counts.refused
        ways = [(self.capturing, bool(self._weights))]
        ways += [(True, False)] if all(ways[0]) else []
        ways += [(False, ways[0][1])] if self.capturing else []
        ways += [(False, False)] if any(ways[0]) else []
        for capture, share in dict.fromkeys(ways):
            try:
                session = self._make(graph, capture=capture, share=share)
            except Exception as error:
                if not (capture or share):
                    raise
                how = " and ".join(("captures",) * capture + ("shared weights",) * share)
                refused.append(f"{graph.name} with {how}: {error}")
            else:
                self.capturing = capture
                return session
        raise AssertionError("the plainest way is the last")

    def _make(self, graph: Path, *, capture: bool, share: bool) -> Any:
        ort = load_onnxruntime()
        options = ort.SessionOptions()
        options.use_per_session_threads = False
        options.log_severity_level = 3
        for key, value in self.provider.session_entries().items():
            options.add_session_config_entry(key, value)
        if not self.provider.on_host:
            options.add_session_config_entry(RECORD, "1")
        if share:
            # Not `add_initializer`, which takes no value that owns its memory, as those on a
            # device do.
            names = list(self._weights)
            options.add_external_initializers(names, [self._weights[name] for name in names])
        return ort.InferenceSession(
            str(graph),
            options,
            providers=self.provider.session_providers(capture=capture, more=self._options),
        )

    def _require_provider(self, provider: Provider, graph: Path) -> None:
        got = self._session.get_providers()
        if got[0] != provider.onnxruntime_names[0]:
            raise UserError(
                f"{graph.name} was to run on {provider.onnxruntime_names[0]} but ONNX Runtime"
                f" took {got[0]}; its log says which library is missing.",
                code="device_unavailable",
                param="device",
            )

    @property
    def input_names(self) -> list[str]:
        return [value.name for value in self._session.get_inputs()]

    @property
    def output_names(self) -> list[str]:
        return [value.name for value in self._session.get_outputs()]

    def binding(self) -> Binding:
        if self.provider.on_host:
            return Binding(self._session, self._runs)
        return DeviceBinding(self._session, self.provider, self.captures, self._runs)
