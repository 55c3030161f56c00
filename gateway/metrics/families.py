"""The metric families of a gateway: what each tally is called, and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

PREFIX = "outpace:"
DRAFT = "Seconds that a round took to draft."
VERIFY = "Seconds of a round's run of the target, shared with whoever was in it."
OVERHEAD = "Seconds that a round took beside its draft and its run, others' runs included."


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is known once a model is loaded. `kv_capacity` counts the tokens of all slots."""

    status: EngineStatus
    kv_capacity: int
    tallies: EngineTallies


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of the gateway's clients. `refused` counts by the code of the error."""

    connections: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


def families(seen: Seen, loaded: Loaded | None) -> Iterator[Metric]:
    """Nothing is said of a model that is not loaded: no metric is zero for lack of a value."""
    yield _gauge("websocket_connections", "Open WebSocket connections.", seen.connections)
    refused = CounterMetricFamily(
        PREFIX + "requests_refused",
        "Requests and messages that were answered with an error, by its code.",
        labels=("code",),
    )
    for code, count in sorted(seen.refused.items()):
        refused.add_metric((code,), count)
    yield refused
    if loaded is not None:
        yield from _now(loaded)
        yield from _speculation(loaded)
        yield from _answers(loaded)


def _now(loaded: Loaded) -> Iterator[Metric]:
    status, model = loaded.status, loaded.status.model
    usage = status.kv_tokens / loaded.kv_capacity
    yield _gauge("num_requests_running", "Requests that have a slot.", status.running, model)
    yield _gauge("num_requests_waiting", "Requests that wait for a slot.", status.waiting, model)
    yield _gauge("slots", "Requests that can run at once.", status.slots, model)
    yield _gauge(
        "kv_cache_usage_perc",
        "Share of the slots' tokens that are held, 1 being all; also those of finished requests.",
        usage,
        model,
    )


def _speculation(loaded: Loaded) -> Iterator[Metric]:
    tallies, model = loaded.tallies, loaded.status.model
    yield _counter("spec_decode_num_drafts", "Rounds that verified a draft.", tallies.drafts, model)
    yield _counter(
        "spec_decode_num_draft_tokens", "Draft tokens verified.", tallies.draft_tokens, model
    )
    yield _counter(
        "spec_decode_num_accepted_tokens",
        "Draft tokens accepted: acceptance is this over the draft tokens verified.",
        tallies.accepted_tokens,
        model,
    )
    positions = CounterMetricFamily(
        PREFIX + "spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens accepted at each position of their draft, from 0.",
        labels=("model", "position"),
    )
    for position, count in enumerate(tallies.accepted_at):
        positions.add_metric((model, str(position)), count)
    yield positions
    choices = CounterMetricFamily(
        PREFIX + "controller_rounds",
        "Rounds by the policy that chose and by whose tokens were verified; none: no draft.",
        labels=("model", "policy", "drafter"),
    )
    for (policy, drafter), count in sorted(tallies.rounds.items()):
        choices.add_metric((model, policy, drafter), count)
    yield choices
    yield _histogram("round_draft_seconds", DRAFT, tallies.draft, model)
    yield _histogram("round_verify_seconds", VERIFY, tallies.verify, model)
    yield _histogram("round_overhead_seconds", OVERHEAD, tallies.overhead, model)


def _answers(loaded: Loaded) -> Iterator[Metric]:
    tallies, model = loaded.tallies, loaded.status.model
    yield _counter("prompt_tokens", "Tokens of prompts.", tallies.prompt_tokens, model)
    yield _counter(
        "prompt_tokens_cached",
        "Of these, those that a slot still held and that were not read again.",
        tallies.cached_tokens,
        model,
    )
    yield _counter("generation_tokens", "Tokens of answers.", tallies.generated_tokens, model)
    ended = CounterMetricFamily(
        PREFIX + "requests_ended",
        "Answers that ended, by how: stop, length, cancelled, failed, or abandoned by the client.",
        labels=("model", "finished_reason"),
    )
    for reason, count in sorted(tallies.endings.items()):
        ended.add_metric((model, reason), count)
    yield ended
    yield _histogram(
        "time_to_first_token_seconds",
        "From a request's arrival to its first token.",
        tallies.first,
        model,
    )
    yield _histogram(
        "inter_token_latency_seconds",
        "From one token to the next; tokens that come together share the time since the last.",
        tallies.next,
        model,
    )
    yield _histogram(
        "e2e_request_latency_seconds", "From a request's arrival to its end.", tallies.whole, model
    )
    yield _histogram(
        "request_queue_time_seconds",
        "From a request's arrival to its slot, loading of graphs included.",
        tallies.queue,
        model,
    )


def _gauge(name: str, meaning: str, value: float, model: str | None = None) -> Metric:
    if model is None:
        return GaugeMetricFamily(PREFIX + name, meaning, value=value)
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=("model",))
    family.add_metric((model,), value)
    return family


def _counter(name: str, meaning: str, value: int, model: str) -> Metric:
    family = CounterMetricFamily(PREFIX + name, meaning, labels=("model",))
    family.add_metric((model,), value)
    return family


def _histogram(name: str, meaning: str, histogram: Histogram, model: str) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, meaning, labels=("model",))
    ends = [*map(floatToGoString, histogram.bounds), "+Inf"]
    counts = histogram.cumulative()
    family.add_metric((model,), list(zip(ends, counts, strict=True)), histogram.sum)
    return family
