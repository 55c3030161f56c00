"""Models, status, health and readiness; and what is kept of whoever asks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from aiohttp import hdrs, web

from gateway.engine.status import CostStatus, EngineStatus
from gateway.http.fields import missing
from gateway.http.gateway import Gateway
from gateway.http.guard import json_response, owner_of, query_value
from gateway.http.packages import (
    configured_families,
    loaded_families,
    model_object,
    models_of,
    packages_of,
)
from gateway.http.timings import MILLISECOND_DIGITS, RATIO_DIGITS
from gateway.http.users import named
from models.errors import UserError


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
        """Alive, whatever the state of the model; 503 while a run of the device is stuck: that
        may need another process."""
        if self._gateway.fleet.stuck:
            return json_response({"status": "stuck"}, 503)
        return json_response({"status": "ok"})

    async def ready(self, request: web.Request) -> web.Response:
        """200 once the model is loaded and warm and until the gateway drains, otherwise 503."""
        state = self._gateway.state
        return json_response({"status": state}, 200 if state == "ready" else 503)

    async def status(self, request: web.Request) -> web.Response:
        """What the engine of the default package, or of the `model` in the query, does, and what it
        has measured of its target and its drafters."""
        self._gateway.require_open()
        member = self._gateway.fleet.member(query_value(request, "model"))
        status = member.status()
        if status is None:
            raise UserError(
                f"The model {member.name!r} was not loaded yet; a request for it loads it.",
                code="not_loaded",
                param="model",
            )
        return json_response(
            {
                **_status(status),
                "state": member.state,
                "packages": packages_of(self._gateway.fleet),
                "policy": self._gateway.settings.speculation.policy,
                "context_length": member.source.context_length,
                "requests": [trace.described() for trace in self._gateway.traces if trace.answers],
            }
        )

    async def metrics(self, request: web.Request) -> web.Response:
        """For Prometheus; while the model loads without what is known of it."""
        gateway = self._gateway
        body, content_type = gateway.metrics.render(
            request.headers.get(hdrs.ACCEPT),
            loaded=loaded_families(gateway.fleet, gateway.metrics),
            configured=configured_families(gateway.fleet),
            connections=gateway.connections,
        )
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    async def forget(self, request: web.Request) -> web.Response:
        """Delete the n-grams of whoever asks: of the key, and of the `user` in the query."""
        user = named(owner_of(request), query_value(request, "user") or None)
        if user is None:
            raise missing("user")
        self._gateway.require_open()
        await self._gateway.fleet.forget(user)
        return json_response({"object": "ngram_store", "deleted": True})

    async def models(self, request: web.Request) -> web.Response:
        self._gateway.require_open()
        return json_response({"object": "list", "data": models_of(self._gateway.fleet)})

    async def model(self, request: web.Request) -> web.Response:
        self._gateway.require_open()
        return json_response(model_object(self._gateway.fleet.member(request.match_info["model"])))


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
