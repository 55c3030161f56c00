"""Models and status on the wire."""

from __future__ import annotations

import dataclasses

import aiohttp

from tests.drafters_support import HEAD
from tests.fake_engine import MODEL, FakeEngine
from tests.http_serving import Served, ask, serving, socket_to
from tests.test_http_guard import get


async def test_the_status_tells_what_was_measured_of_the_drafters() -> None:
    async with serving(FakeEngine()) as served:
        code, status = await get(served, "/v1/status")
    assert code == 200
    assert (status["model"], status["free_slots"], status["drafter"]) == (MODEL, 4, "ngram+eagle3")
    assert status["run_ms"] == {"2": 10.0, "8": 12.0}
    assert status["costs"] == {
        "source": "cached",
        "measured_at": "2026-01-02T03:04:05+00:00",
        "scaled": 1.1,
        "fit_error": -0.03,
        "per_row": 0.5,
        "per_past": 0.00123457,
        "per_work": 0.0,
        "factor": 1.05,
        "residuals": {"2": 0.98, "0": 1.02},
        "tree": 1.2,
        "overhead_ms": 0.4,
    }
    assert status["policy"] == "cost"
    ngram, eagle3 = status["drafters"]
    assert (ngram["name"], ngram["loaded"], ngram["checkpoint"]) == ("ngram", True, None)
    assert eagle3 == {
        "name": "eagle3",
        "loaded": True,
        "checkpoint": "heads/test",
        "reads": "taps",
        "longest": 4,
        "draft_n": 8,
        "draft_n_accepted": 6,
        "survival": [0.6543, 0.4],
        "run_ms": {"1": 1.235, "4": 2.0},
        "failures": 0,
        "problem": None,
    }


async def test_there_is_no_status_before_the_model_is_loaded() -> None:
    async with serving(None) as served:
        assert (await get(served, "/v1/status"))[0] == 503


async def test_models_name_their_drafters() -> None:
    engine = FakeEngine()
    manifest = dataclasses.replace(engine.package.manifest, drafters=(HEAD,))
    engine.package = dataclasses.replace(engine.package, manifest=manifest)
    async with serving(engine) as served:
        _, body = await get(served, "/v1/models")
    assert body["data"][0]["drafters"] == ["ngram", "eagle3"]


async def scrape(served: Served, **headers: str) -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{served.url}/metrics") as response,
    ):
        return response.status, response.headers["Content-Type"], await response.text()


async def test_metrics_are_text_for_prometheus() -> None:
    async with serving(FakeEngine()) as served:
        async with socket_to(served) as socket:
            await ask(socket, input=7)
            status, kind, text = await scrape(served)
        assert status == 200
        assert kind.startswith("text/plain; version=")
        assert 'outpace:requests_refused_total{code="invalid_type"} 1.0' in text
        assert "outpace:websocket_connections 1.0" in text
        assert f'outpace:slots{{model="{MODEL}"}} 4.0' in text
        _, kind, text = await scrape(served, Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


async def test_metrics_are_there_before_the_model_is() -> None:
    async with serving(None) as served:
        await get(served, "/v1/models")
        status, _, text = await scrape(served)
    assert status == 200
    assert 'outpace:requests_refused_total{code="loading"} 1.0' in text
    assert "num_requests_running" not in text


async def test_metrics_need_a_key_where_there_are_keys() -> None:
    async with serving(FakeEngine(), api_keys=("right",)) as served:
        assert (await scrape(served))[0] == 401
        assert (await scrape(served, Authorization="Bearer right"))[0] == 200
