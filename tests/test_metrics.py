"""What is counted, and what Prometheus reads of it."""

from __future__ import annotations

import dataclasses

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from gateway.engine.observer import RoundSeen
from gateway.engine.status import EngineStatus
from gateway.metrics.families import Configured, Loaded
from gateway.metrics.metrics import Metrics
from gateway.metrics.tallies import EngineTallies, Histogram
from models.capture import GraphStatus
from tests.fake_engine import MODEL, FakeEngine

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in prometheus(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    known = {"model": MODEL, **labels}
    return found["outpace:" + name, tuple(sorted(known.items()))]


def rendered(metrics: Metrics, status: EngineStatus | None = None, accept: str = "") -> str:
    loaded = [] if status is None else [Loaded(status, 4000, metrics.of(status.model))]
    body, _ = metrics.render(accept, loaded=loaded, connections=3)
    return body.decode()


def a_round(drafter: str = "ngram", verified: int = 0, accepted: int = 0) -> RoundSeen:
    return RoundSeen("cost", drafter, verified, accepted, 0.001, 0.02, 0.0002)


def test_a_histogram_counts_up_to_and_with_its_bounds() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds, times in ((0.05, 1), (0.1, 2), (0.5, 1), (7.0, 3)):
        histogram.observe(seconds, times)
    assert histogram.cumulative() == [3, 4, 7]
    assert histogram.count == 7
    assert histogram.sum == pytest.approx(0.05 + 0.2 + 0.5 + 21.0)


def test_rounds_are_counted_by_what_they_verified() -> None:
    tallies = EngineTallies()
    tallies.round(a_round(verified=4, accepted=2))
    tallies.round(a_round(verified=3, accepted=0))
    tallies.round(a_round(drafter="eagle3+ngram", verified=5, accepted=4))
    tallies.round(a_round(drafter="none"))
    assert (tallies.drafts, tallies.draft_tokens, tallies.accepted_tokens) == (3, 12, 6)
    assert tallies.accepted_at == [2, 2, 1, 1]
    assert tallies.rounds == {
        ("cost", "ngram"): 2,
        ("cost", "eagle3+ngram"): 1,
        ("cost", "none"): 1,
    }
    assert tallies.verify.count == 4
    assert tallies.verify.sum == pytest.approx(0.08)


def test_tokens_that_come_together_share_their_time() -> None:
    tallies = EngineTallies()
    tallies.first_token(0.3)
    tallies.more_tokens(4, 0.08)
    assert (tallies.generated_tokens, tallies.next.count) == (5, 4)
    assert tallies.next.sum == pytest.approx(0.08)
    assert tallies.first.count == 1


def test_the_names_are_those_of_the_contract() -> None:
    metrics = Metrics()
    tallies = metrics.of(MODEL)
    tallies.started(0.5, prompt_tokens=100, cached_tokens=60)
    tallies.first_token(0.75)
    tallies.more_tokens(3, 0.06)
    tallies.round(a_round(verified=4, accepted=2))
    tallies.ended("stop", 2.0)
    metrics.refused["queue_full"] += 2
    engine = FakeEngine()
    engine.running = 1
    found = samples(rendered(metrics, engine.status()))
    assert value(found, "spec_decode_num_drafts_total") == 1
    assert value(found, "spec_decode_num_draft_tokens_total") == 4
    assert value(found, "spec_decode_num_accepted_tokens_total") == 2
    for position in "01":
        name = "spec_decode_num_accepted_tokens_per_pos_total"
        assert value(found, name, position=position) == 1
    assert value(found, "controller_rounds_total", policy="cost", drafter="ngram") == 1
    assert value(found, "num_requests_running") == 1
    assert value(found, "num_requests_waiting") == 0
    assert value(found, "kv_cache_usage_perc") == 0
    assert value(found, "prompt_tokens_total") == 100
    assert value(found, "prompt_tokens_cached_total") == 60
    assert value(found, "generation_tokens_total") == 4
    assert value(found, "requests_ended_total", finished_reason="stop") == 1
    for name, total in (
        ("time_to_first_token_seconds", 0.75),
        ("inter_token_latency_seconds", 0.06),
        ("e2e_request_latency_seconds", 2.0),
        ("request_queue_time_seconds", 0.5),
        ("round_draft_seconds", 0.001),
        ("round_verify_seconds", 0.02),
        ("round_overhead_seconds", 0.0002),
    ):
        assert value(found, name + "_sum") == pytest.approx(total)
        assert value(found, name + "_bucket", le="+Inf") == value(found, name + "_count")
    assert found["outpace:requests_refused_total", (("code", "queue_full"),)] == 2
    assert found["outpace:websocket_connections", ()] == 3


def test_usage_is_a_share_of_what_the_slots_hold() -> None:
    status = FakeEngine().status()
    object.__setattr__(status, "kv_tokens", 1000)
    assert value(samples(rendered(Metrics(), status)), "kv_cache_usage_perc") == 0.25


def test_nothing_is_said_of_a_model_that_is_not_loaded() -> None:
    found = samples(rendered(Metrics()))
    assert {name for name, _ in found} == {"outpace:websocket_connections"}


def test_graphs_that_do_not_exist_are_not_counted() -> None:
    assert "replay" not in rendered(Metrics(), FakeEngine().status())


def test_runs_on_a_device_are_counted_by_how_they_ran() -> None:
    status = FakeEngine().status()
    graphs = GraphStatus(captured=7, replayed=1234, eager={"wide": 5, "tree": 2}, refused=("why",))
    object.__setattr__(status, "graphs", graphs)
    found = samples(rendered(Metrics(), status))
    assert value(found, "graph_captures_total") == 7
    assert value(found, "graph_replays_total") == 1234
    assert value(found, "graph_eager_runs_total", reason="wide") == 5
    assert value(found, "graph_eager_runs_total", reason="tree") == 2
    assert value(found, "graphs_refused") == 1


def test_openmetrics_is_spoken_where_it_is_asked_for() -> None:
    metrics, status = Metrics(), FakeEngine().status()
    metrics.of(MODEL).round(a_round(verified=4, accepted=2))
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    loaded = [Loaded(status, 4000, metrics.of(MODEL))]
    body, kind = metrics.render(accept, loaded=loaded, connections=0)
    assert kind.startswith("application/openmetrics-text")
    text = body.decode()
    assert text.endswith("# EOF\n")
    names = {family.name for family in open_metrics(text)}
    assert "outpace:spec_decode_num_drafts" in names
    _, kind = metrics.render("text/html", loaded=loaded, connections=0)
    assert kind.startswith("text/plain; version=")


def test_every_family_says_what_it_means() -> None:
    text = rendered(Metrics(), FakeEngine().status())
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert helped == typed
    assert all(len(line.split(maxsplit=3)) == 4 for line in text.splitlines() if "# HELP" in line)
    assert all(name.startswith("outpace:") for name in typed)


def test_a_scrape_changes_nothing() -> None:
    metrics, status = Metrics(), FakeEngine().status()
    metrics.of(MODEL).ended("length", 1.0)
    assert rendered(metrics, status) == rendered(metrics, status)


def test_every_model_has_its_label_in_one_family() -> None:
    metrics, status = Metrics(), FakeEngine().status()
    other = dataclasses.replace(status, model="other", slots=9)
    metrics.of(MODEL).ended("stop", 1.0)
    metrics.of("other").ended("length", 2.0)
    loaded = [Loaded(each, 4000, metrics.of(each.model)) for each in (status, other)]
    configured = [
        Configured(MODEL, "loaded", 2, 1, 7 << 20),
        Configured("third", "unloaded", 0, 0, 0),
    ]
    text = metrics.render("", loaded=loaded, configured=configured, connections=0)[0].decode()
    found = samples(text)
    assert value(found, "slots") == 4
    assert value(found, "slots", model="other") == 9
    assert value(found, "requests_ended_total", finished_reason="stop") == 1
    assert value(found, "requests_ended_total", model="other", finished_reason="length") == 1
    assert value(found, "package_state", state="loaded") == 1
    assert value(found, "package_state", model="third", state="unloaded") == 1
    assert value(found, "package_loads_total") == 2
    assert value(found, "package_failures_total") == 1
    assert value(found, "package_memory_bytes") == 7 << 20
    helped = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert len(helped) == len(set(helped)), "a family is there once"
