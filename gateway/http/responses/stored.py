"""`/v1/responses/{response_id}`: a response again, as it is or as it was streamed; its end."""

from __future__ import annotations

from aiohttp import web

from gateway.http.fields import invalid
from gateway.http.gateway import Gateway
from gateway.http.guard import json_response, owner_of, query_value
from gateway.http.responses.journal import starting_after
from gateway.http.responses.kept import Kept
from gateway.http.responses.routes import send_entries
from gateway.http.responses.store import turn_key
from gateway.http.sse import Streaming

TRUE, FALSE = ("true", "1"), ("false", "0", "")


class StoredRoutes:
    def __init__(self, gateway: Gateway, streaming: Streaming) -> None:
        self._gateway = gateway
        self._streaming = streaming

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_get("/v1/responses/{response_id}", self.retrieve, allow_head=False)
        router.add_delete("/v1/responses/{response_id}", self.delete)
        router.add_post("/v1/responses/{response_id}/cancel", self.cancel)

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        """As it is now; with `stream` its events behind number `starting_after`, to the last."""
        stream = _flag(request, "stream")
        after = starting_after(query_value(request, "starting_after"))
        kept = self._find(request)
        if not stream:
            if after >= 0:
                raise invalid("starting_after", "needs stream to be true")
            return json_response(kept.response)
        kept.journal.require(after)
        events = self._streaming.to(request)
        await send_entries(events, kept.journal.read(after))
        return events.response

    async def delete(self, request: web.Request) -> web.Response:
        """Forget it, as a response and as what a conversation begins with. It ends if it runs."""
        response_id, owner = request.match_info["response_id"], owner_of(request)
        self._gateway.kept.delete(response_id, owner)
        self._gateway.turns.evict(turn_key(owner, response_id))
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: web.Request) -> web.Response:
        """End it soon; one that has ended stays as it is."""
        kept = self._find(request)
        kept.cancel()
        async for _ in kept.journal.read(kept.journal.last):
            pass
        return json_response(kept.response)

    def _find(self, request: web.Request) -> Kept:
        return self._gateway.kept.find(request.match_info["response_id"], owner_of(request))


def _flag(request: web.Request, name: str) -> bool:
    value = (query_value(request, name) or "").lower()
    if value not in (*TRUE, *FALSE):
        raise invalid(name, "must be true or false")
    return value in TRUE
