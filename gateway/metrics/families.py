"""The metric families of a gateway: what each tally is called, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from gateway.engine.status import EngineStatus
from gateway.metrics.tallies import EngineTallies, Histogram
from models.capture import GraphStatus

PREFIX = "outpace:"
DRAFT = "Seconds that a round took to draft."
VERIFY = "Seconds of a round's run of the target, shared with whoever was in it."
OVERHEAD = "Seconds that a round took beside its draft and its run, others' runs included."


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is known of a model that was loaded. `kv_capacity` counts the tokens of all slots."""

    status: EngineStatus
    kv_capacity: int
    tallies: EngineTallies

    @property
    def model(self) -> str:
        return self.status.model


@dataclass(frozen=True, slots=True)
class Configured:
    """What is known of any package. `claimed` are the bytes that are counted for it now."""

    model: str
    state: str
    loads: int
    failures: int
    claimed: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the gateway's clients. `refused` counts by the code of the error."""

    connections: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


def families(
    seen: Seen, loaded: Sequence[Loaded], configured: Sequence[Configured] = ()
) -> Iterator[Metric]:
    """Nothing is said of a model that was not loaded yet: no metric is zero for lack of a value."""
    connections = GaugeMetricFamily(
        PREFIX + "websocket_connections", "Open WebSocket connections.", value=seen.connections
    )
    yield connections
    refused = CounterMetricFamily(
        PREFIX + "requests_refused",
        "Requests and messages that were answered with an error, by its code.",
        labels=("code",),
    )
    for code, count in sorted(seen.refused.items()):
        refused.add_metric((code,), count)
    yield refused
    if configured:
        yield from _packages(configured)
    if loaded:
        yield from _now(loaded)
        yield from _speculation(loaded)
        yield from _answers(loaded)
        graphs = {each.model: each.status.graphs for each in loaded}
        captured = {model: each for model, each in graphs.items() if each is not None}
        if captured:
            yield from _graphs(captured)


def _packages(configured: Sequence[Configured]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        PREFIX + "package_state",
        "1 for the state that a package is in: unloaded, loading, loaded, draining, reloading,"
        " failed or stuck.",
        labels=("model", "state"),
    )
    loads = CounterMetricFamily(PREFIX + "package_loads", "Times it was loaded.", labels=("model",))
    failures = CounterMetricFamily(
        PREFIX + "package_failures",
        "Times its device or its loading failed.",
        labels=("model",),
    )
    memory = GaugeMetricFamily(
        PREFIX + "package_memory_bytes",
        "Memory that is counted for it; 0 where it is not loaded.",
        labels=("model",),
    )
    for each in configured:
        states.add_metric((each.model, each.state), 1)
        loads.add_metric((each.model,), each.loads)
        failures.add_metric((each.model,), each.failures)
        memory.add_metric((each.model,), each.claimed)
    yield from (states, loads, failures, memory)


def _now(loaded: Sequence[Loaded]) -> Iterator[Metric]:
    yield _gauge(
        "num_requests_running",
        "Requests that have a slot.",
        loaded,
        lambda each: each.status.running,
    )
    yield _gauge(
        "num_requests_waiting",
        "Requests that wait for a slot.",
        loaded,
        lambda each: each.status.waiting,
    )
    yield _gauge("slots", "Requests that can run at once.", loaded, lambda each: each.status.slots)
    yield _gauge(
        "kv_cache_usage_perc",
        "Share of the slots' tokens that are held, 1 being all; also those of finished requests.",
        loaded,
        lambda each: each.status.kv_tokens / each.kv_capacity,
    )


def _speculation(loaded: Sequence[Loaded]) -> Iterator[Metric]:
    yield _counter(
        "spec_decode_num_drafts",
        "Rounds that verified a draft.",
        loaded,
        lambda tallies: tallies.drafts,
    )
    yield _counter(
        "spec_decode_num_draft_tokens",
        "Draft tokens verified.",
        loaded,
        lambda tallies: tallies.draft_tokens,
    )
    yield _counter(
        "spec_decode_num_accepted_tokens",
        "Draft tokens accepted: acceptance is this over the draft tokens verified.",
        loaded,
        lambda tallies: tallies.accepted_tokens,
    )
    positions = CounterMetricFamily(
        PREFIX + "spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens accepted at each position of their draft, from 0.",
        labels=("model", "position"),
    )
    choices = CounterMetricFamily(
        PREFIX + "controller_rounds",
        "Rounds by the policy that chose and by whose tokens were verified; none: no draft.",
        labels=("model", "policy", "drafter"),
    )
    for each in loaded:
        for position, count in enumerate(each.tallies.accepted_at):
            positions.add_metric((each.model, str(position)), count)
        for (policy, drafter), count in sorted(each.tallies.rounds.items()):
            choices.add_metric((each.model, policy, drafter), count)
    yield positions
    yield choices
    yield _histogram("round_draft_seconds", DRAFT, loaded, lambda tallies: tallies.draft)
    yield _histogram("round_verify_seconds", VERIFY, loaded, lambda tallies: tallies.verify)
    yield _histogram("round_overhead_seconds", OVERHEAD, loaded, lambda tallies: tallies.overhead)


def _graphs(by_model: Mapping[str, GraphStatus]) -> Iterator[Metric]:
    captures = CounterMetricFamily(
        PREFIX + "graph_captures",
        "Runs on the GPU that captured a graph for their shape.",
        labels=("model",),
    )
    replays = CounterMetricFamily(
        PREFIX + "graph_replays", "Runs that replayed a captured graph.", labels=("model",)
    )
    eager = CounterMetricFamily(
        PREFIX + "graph_eager_runs",
        "Runs without a captured graph, by the reason: wide (chunks of prompts, and what reaches"
        " the end of the context), tree, entries (what a drafter had to catch up), compaction.",
        labels=("model", "reason"),
    )
    refused = GaugeMetricFamily(
        PREFIX + "graphs_refused",
        "Graphs that are not captured, or do not share weights, though asked to.",
        labels=("model",),
    )
    for model, graphs in by_model.items():
        captures.add_metric((model,), graphs.captured)
        replays.add_metric((model,), graphs.replayed)
        for reason, count in sorted(graphs.eager.items()):
            eager.add_metric((model, reason), count)
        refused.add_metric((model,), len(graphs.refused))
    yield from (captures, replays, eager, refused)


def _answers(loaded: Sequence[Loaded]) -> Iterator[Metric]:
    yield _counter(
        "prompt_tokens", "Tokens of prompts.", loaded, lambda tallies: tallies.prompt_tokens
    )
    yield _counter(
        "prompt_tokens_cached",
        "Of these, those that a slot still held and that were not read again.",
        loaded,
        lambda tallies: tallies.cached_tokens,
    )
    yield _counter(
        "generation_tokens", "Tokens of answers.", loaded, lambda tallies: tallies.generated_tokens
    )
    ended = CounterMetricFamily(
        PREFIX + "requests_ended",
        "Answers that ended, by how: stop, length, cancelled, failed, or abandoned by the client.",
        labels=("model", "finished_reason"),
    )
    for each in loaded:
        for reason, count in sorted(each.tallies.endings.items()):
            ended.add_metric((each.model, reason), count)
    yield ended
    yield _histogram(
        "time_to_first_token_seconds",
        "From a request's arrival to its first token.",
        loaded,
        lambda tallies: tallies.first,
    )
    yield _histogram(
        "inter_token_latency_seconds",
        "From one token to the next; tokens that come together share the time since the last.",
        loaded,
        lambda tallies: tallies.next,
    )
    yield _histogram(
        "e2e_request_latency_seconds",
        "From a request's arrival to its end.",
        loaded,
        lambda tallies: tallies.whole,
    )
    yield _histogram(
        "request_queue_time_seconds",
        "From a request's arrival to its slot, loading of graphs included.",
        loaded,
        lambda tallies: tallies.queue,
    )


def _gauge(
    name: str, meaning: str, loaded: Sequence[Loaded], value: Callable[[Loaded], float]
) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=("model",))
    for each in loaded:
        family.add_metric((each.model,), value(each))
    return family


def _counter(
    name: str, meaning: str, loaded: Sequence[Loaded], value: Callable[[EngineTallies], int]
) -> Metric:
    family = CounterMetricFamily(PREFIX + name, meaning, labels=("model",))
    for each in loaded:
        family.add_metric((each.model,), value(each.tallies))
    return family


def _histogram(
    name: str,
    meaning: str,
    loaded: Sequence[Loaded],
    histogram: Callable[[EngineTallies], Histogram],
) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, meaning, labels=("model",))
    for each in loaded:
        counted = histogram(each.tallies)
        ends = [*map(floatToGoString, counted.bounds), "+Inf"]
        buckets = list(zip(ends, counted.cumulative(), strict=True))
        family.add_metric((each.model,), buckets, counted.sum)
    return family
