"""What is measured of one gateway, in the text that Prometheus reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gateway.metrics.families import Configured, Loaded, Seen, families
from gateway.metrics.tallies import EngineTallies


class Metrics:
    """`refused` counts errors by their code."""

    def __init__(self) -> None:
        self._engines: dict[str, EngineTallies] = {}
        self.refused: Counter[str] = Counter()

    def of(self, model: str) -> EngineTallies:
        """What observes the engines of a model, however often it is loaded: counters go on."""
        return self._engines.setdefault(model, EngineTallies())

    def render(
        self,
        accept: str | None,
        *,
        connections: int,
        loaded: Sequence[Loaded] = (),
        configured: Sequence[Configured] = (),
    ) -> tuple[bytes, str]:
        """The text and its content type: OpenMetrics where `accept` names it.

        `loaded` are the models that were loaded, `configured` all packages.
        """
        seen = Seen(connections, dict(self.refused))
        # A registry a scrape: nothing is registered that could outlive this gateway.
        registry = CollectorRegistry()
        registry.register(_Once(families(seen, loaded, configured)))
        encode, content_type = choose_encoder(accept or "")
        return encode(registry), content_type


class _Once(Collector):
    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)
