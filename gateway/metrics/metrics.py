"""What is measured of one gateway, in the text that Prometheus reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.engine.status import EngineStatus
from gateway.metrics.families import Loaded, Seen, families
from gateway.metrics.tallies import EngineTallies


class Metrics:
    """`engine` observes the engine; `refused` counts errors by their code."""

    def __init__(self) -> None:
        self.engine = EngineTallies()
        self.refused: Counter[str] = Counter()

    def render(
        self,
        accept: str | None,
        *,
        status: EngineStatus | None,
        kv_capacity: int,
        connections: int,
    ) -> tuple[bytes, str]:
        """The text and its content type: OpenMetrics where `accept` names it.

        `status` None: no model is loaded.
        """
        loaded = None if status is None else Loaded(status, kv_capacity, self.engine)
        seen = Seen(connections, dict(self.refused))
        # A registry a scrape: nothing is registered that could outlive this gateway.
        registry = CollectorRegistry()
        registry.register(_Once(families(seen, loaded)))
        encode, content_type = choose_encoder(accept or "")
        return encode(registry), content_type


class _Once(Collector):
    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)
