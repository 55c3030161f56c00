"""Models, status, health and readiness; and what is kept of whoever asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from aiohttp import hdrs, web

from gateway.engine.names import NGRAM
from gateway.engine.status import CostStatus, EngineStatus
from gateway.http.backend import Engine
from gateway.http.fields import missing
from gateway.http.gateway import Gateway, model_not_found
from gateway.http.guard import json_response, owner_of
from gateway.http.timings import MILLISECOND_DIGITS, RATIO_DIGITS
from gateway.http.users import named


class InfoRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/health", self.health)
        router.add_get("/ready", self.ready)
        router.add_get("/metrics", self.metrics)
        router.add_get("/v1/status", self.status)
        router.add_delete("/v1/ngram_store", self.forget)
        router.add_get("/v1/models", self.models)
        router.add_get("/v1/models/{model:.+}", self.model)

    async def health(self, request: web.Request) -> web.Response:
        """Alive, whatever the state of the model."""
        return json_response({"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        """200 once the model is loaded and warm and until the gateway drains, otherwise 503."""
        if self._gateway.ready:
            return json_response({"status": "ready"})
        status = "draining" if self._gateway.draining else "loading"
        return json_response({"status": status}, 503)

    async def status(self, request: web.Request) -> web.Response:
        """What the engine does, and what it has measured of its target and its drafters."""
        engine = self._gateway.accepting()
        status = _status(engine.status())
        return json_response(
            {
                **status,
                "policy": self._gateway.settings.speculation.policy,
                "context_length": engine.context_length,
                "requests": [trace.described() for trace in self._gateway.traces if trace.answers],
            }
        )

    async def metrics(self, request: web.Request) -> web.Response:
        """For Prometheus; while the model loads without what is known of it."""
        engine = self._gateway.engine
        status, capacity = None, 0
        if engine is not None:
            status = engine.status()
            capacity = status.slots * engine.context_length
        body, content_type = self._gateway.metrics.render(
            request.headers.get(hdrs.ACCEPT),
            status=status,
            kv_capacity=capacity,
            connections=self._gateway.connections,
        )
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    async def forget(self, request: web.Request) -> web.Response:
        """Delete the n-grams of whoever asks: of the key, and of the `user` in the query."""
        user = named(owner_of(request), request.query.get("user") or None)
        if user is None:
            raise missing("user")
        await self._gateway.accepting().forget(user)
        return json_response({"object": "ngram_store", "deleted": True})

    async def models(self, request: web.Request) -> web.Response:
        engine = self._gateway.accepting()
        return json_response({"object": "list", "data": [_describe(engine)]})

    async def model(self, request: web.Request) -> web.Response:
        engine, asked = self._gateway.accepting(), request.match_info["model"]
        if asked != engine.package.manifest.name:
            raise model_not_found(asked, engine.package.manifest.name)
        return json_response(_describe(engine))


def _describe(engine: Engine) -> dict[str, Any]:
    manifest = engine.package.manifest
    return {
        "id": manifest.name,
        "object": "model",
        "created": manifest.created,
        "owned_by": "outpace",
        "context_length": engine.context_length,
        "drafters": [NGRAM, *(drafter.kind for drafter in manifest.drafters)],
    }


def _status(status: EngineStatus) -> dict[str, Any]:
    written = dataclasses.asdict(status)
    return {
        **written,
        "run_ms": _milliseconds(status.run_ms),
        "costs": _costs(status.costs),
        "drafters": [
            {
                **drafter,
                "survival": [round(share, RATIO_DIGITS) for share in drafter["survival"]],
                "run_ms": _milliseconds(drafter["run_ms"]),
            }
            for drafter in written["drafters"]
        ],
    }


def _costs(costs: CostStatus) -> dict[str, Any]:
    """A cached token costs nanoseconds: six digits count, not so many decimals."""
    written = dataclasses.asdict(costs)
    residuals = {str(most): _rounded(each) for most, each in costs.residuals.items()}
    return {**{name: _rounded(value) for name, value in written.items()}, "residuals": residuals}


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _milliseconds(by_width: Mapping[int, float]) -> dict[str, float]:
    return {str(width): round(each, MILLISECOND_DIGITS) for width, each in by_width.items()}
