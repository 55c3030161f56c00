"""Responses again: retrieved, resumed, in the background, cancelled, deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from gateway.http.responses import kept as kept_module
from tests.fake_engine import ENDLESS, FakeEngine
from tests.http_serving import Served, answer_of, ask, is_last, serving, socket_to, until
from tests.patience import PATIENCE
from tests.test_http_guard import get
from tests.test_http_websocket import reset, text_of

LONG = "abcdefghij" * 20
KEYS = ("first-key", "second-key")


async def events_of(
    served: Served, response_id: str, after: int | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Those that GET streams."""
    query = "" if after is None else f"&starting_after={after}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"{served.base}/responses/{response_id}?stream=true{query}", **options
        ) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        blocks = (await response.text()).removesuffix("\n\n").split("\n\n")
    return [orjson.loads(block.partition("data: ")[2]) for block in blocks if "data: " in block]


async def begun(socket: aiohttp.ClientWebSocketResponse, **fields: Any) -> str:
    """The id of a response that runs."""
    await socket.send_json({"type": "response.create", "input": "x", **fields})
    created = await socket.receive_json(timeout=PATIENCE)
    return str(created["response"]["id"])


async def test_a_stored_response_is_retrieved_as_it_ended() -> None:
    async with serving(FakeEngine("yes")) as served:
        _, made = await get(served, "/v1/responses", method="POST", json={"input": "x"})
        assert await get(served, f"/v1/responses/{made['id']}") == (200, made)
        async with socket_to(served) as socket:
            events = await ask(socket, input="x")
        last = events[-1]["response"]
        assert await get(served, f"/v1/responses/{last['id']}") == (200, last)


async def test_what_is_not_stored_is_not_kept() -> None:
    async with serving(FakeEngine("yes")) as served:
        body = {"input": "x", "store": False}
        _, made = await get(served, "/v1/responses", method="POST", json=body)
        status, told = await get(served, f"/v1/responses/{made['id']}")
        assert (status, told["error"]["code"]) == (404, "response_not_found")
        assert len(served.gateway.kept) == 0


async def test_a_running_response_tells_what_it_has_so_far() -> None:
    engine = FakeEngine(LONG, held=30)
    async with serving(engine) as served, socket_to(served) as socket:
        response_id = await begun(socket)
        for _ in range(20):
            await socket.receive_json(timeout=PATIENCE)
        _, found = await get(served, f"/v1/responses/{response_id}")
    assert found["status"] == "in_progress"
    (item,) = found["output"]
    assert LONG.startswith(item["content"][0]["text"])
    assert len(item["content"][0]["text"]) >= 16


@pytest.mark.parametrize("after", [None, 0, 3, 10])
async def test_events_are_replayed_as_they_were_sent(after: int | None) -> None:
    async with serving(FakeEngine("abcdefgh")) as served:
        async with socket_to(served) as socket:
            sent = await ask(socket, input="x")
        response_id = sent[-1]["response"]["id"]
        begin = 0 if after is None else after + 1
        assert await events_of(served, response_id, after) == sent[begin:]
        async with socket_to(served) as socket:
            await socket.send_json(
                {
                    "type": "response.resume",
                    "response_id": response_id,
                    "starting_after": after,
                    "stream_id": "again",
                }
            )
            replayed = await answer_of(socket)
        assert replayed == [{**event, "stream_id": "again"} for event in sent[begin:]]


async def test_a_response_is_followed_by_others_while_it_runs() -> None:
    engine = FakeEngine(LONG, held=30)
    async with serving(engine) as served, socket_to(served) as socket:
        response_id = await begun(socket)
        first = await socket.receive_json(timeout=PATIENCE)
        following = asyncio.create_task(events_of(served, response_id, 0))
        await until(lambda: len(list(served.gateway.traces)) == 2)
        engine.go_on()
        sent = [first, *await answer_of(socket)]
        assert await following == sent
    assert [event["sequence_number"] for event in sent] == list(range(1, len(sent) + 1))


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_background_response_goes_on_without_its_client_and_is_resumed_without_a_gap(
    how: str,
) -> None:
    engine = FakeEngine(LONG, held=60)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket, background=True)
            seen = [await socket.receive_json(timeout=PATIENCE) for _ in range(30)]
            if how == "reset":
                reset(socket)
            else:
                await socket.close()
        assert engine.running == 1, "nobody reads it, and it goes on"
        engine.go_on()
        async with socket_to(served) as socket:
            await socket.send_json(
                {
                    "type": "response.resume",
                    "response_id": response_id,
                    "starting_after": seen[-1]["sequence_number"],
                }
            )
            rest = await answer_of(socket)
        everything = [*seen, *rest]
        assert [event["sequence_number"] for event in everything] == list(
            range(1, len(everything) + 1)
        )
        assert text_of(everything) == LONG
        assert rest[-1]["type"] == "response.completed"
        assert rest[-1]["response"]["background"] is True
        # And once more, from a stored one over HTTP.
        assert (await events_of(served, response_id))[1:] == everything


async def test_a_background_stream_over_http_goes_on_too() -> None:
    engine = FakeEngine(LONG, held=60)
    async with serving(engine) as served:
        async with aiohttp.ClientSession() as session:
            body = {"input": "x", "background": True, "stream": True}
            async with session.post(f"{served.base}/responses", json=body) as response:
                line = b""
                while not line.startswith(b"data: "):
                    line = await response.content.readline()
                created = orjson.loads(line.removeprefix(b"data: "))
                response.close()
        response_id = created["response"]["id"]
        engine.go_on()
        rest = await events_of(served, response_id, created["sequence_number"])
        assert text_of(rest) == LONG
        assert rest[0]["sequence_number"] == 1


async def test_a_background_response_is_told_at_once_and_polled() -> None:
    engine = FakeEngine("abc", held=1)
    async with serving(engine) as served:
        body = {"input": "x", "background": True}
        status, made = await get(served, "/v1/responses", method="POST", json=body)
        assert (status, made["status"], made["output"]) == (200, "in_progress", [])
        path = f"/v1/responses/{made['id']}"
        assert (await get(served, path))[1]["status"] == "in_progress"
        engine.go_on()
        await until(lambda: not served.gateway.kept.find(made["id"], None).running)
        found = (await get(served, path))[1]
        assert (found["status"], found["background"]) == ("completed", True)
        assert found["output"][0]["content"][0]["text"] == "abc"
        # It can be continued like any other.
        more = {"input": "y", "previous_response_id": made["id"]}
        assert (await get(served, "/v1/responses", method="POST", json=more))[0] == 200
        assert "<assistant>abc</>" in engine.prompt()


async def test_a_client_that_leaves_a_response_of_the_foreground_cancels_it() -> None:
    engine = FakeEngine(ENDLESS, pace=0.005)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket)
            seen = [await socket.receive_json(timeout=PATIENCE) for _ in range(10)]
        await until(lambda: engine.running == 0)
        # What there is of it is whole: its events end, and say how.
        events = await events_of(served, response_id)
        assert events[1:11] == seen
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.incomplete"
        assert events[-1]["response"]["status"] == "cancelled"
        _, found = await get(served, f"/v1/responses/{response_id}")
        assert found == events[-1]["response"]


async def test_a_running_response_is_cancelled_by_its_id() -> None:
    engine = FakeEngine(ENDLESS, pace=0.005)
    async with serving(engine) as served:
        body = {"input": "x", "background": True}
        _, made = await get(served, "/v1/responses", method="POST", json=body)
        path = f"/v1/responses/{made['id']}/cancel"
        status, ended = await get(served, path, method="POST")
        assert (status, ended["status"]) == (200, "cancelled")
        assert engine.running == 0
        assert await get(served, path, method="POST") == (200, ended), "it stays as it ended"
        async with socket_to(served) as socket:
            response_id = await begun(socket)
            _, ended = await get(served, f"/v1/responses/{response_id}/cancel", method="POST")
            assert ended["status"] == "cancelled"
            assert (await answer_of(socket))[-1]["type"] == "response.incomplete"


async def test_a_socket_cancels_what_goes_on_without_it() -> None:
    engine = FakeEngine(ENDLESS, pace=0.005)
    async with serving(engine) as served:
        async with socket_to(served) as socket:
            response_id = await begun(socket, background=True)
        async with socket_to(served) as socket:
            await socket.send_json({"type": "response.cancel", "response_id": response_id})
            await until(lambda: engine.running == 0)


async def test_a_deleted_response_is_gone_and_ends() -> None:
    engine = FakeEngine(ENDLESS, pace=0.005)
    async with serving(engine) as served:
        body = {"input": "x", "background": True}
        _, running = await get(served, "/v1/responses", method="POST", json=body)
        engine.answer, engine.pace = "yes", 0.0
        _, ended = await get(served, "/v1/responses", method="POST", json={"input": "x"})
        for made in (running, ended):
            path = f"/v1/responses/{made['id']}"
            deleted = {"id": made["id"], "object": "response", "deleted": True}
            assert await get(served, path, method="DELETE") == (200, deleted)
            for method in ("GET", "DELETE"):
                assert (await get(served, path, method=method))[0] == 404
            more = {"input": "y", "previous_response_id": made["id"]}
            status, told = await get(served, "/v1/responses", method="POST", json=more)
            assert (status, told["error"]["code"]) == (404, "previous_response_not_found")
        await until(lambda: engine.running == 0)
        await until(lambda: served.gateway.running == 0)
        assert len(served.gateway.kept) == 0


async def test_what_is_somebody_elses_is_not_there() -> None:
    mine, other = ({"Authorization": f"Bearer {key}"} for key in KEYS)
    async with serving(FakeEngine("yes"), api_keys=KEYS) as served:
        _, made = await get(
            served, "/v1/responses", method="POST", json={"input": "x"}, headers=mine
        )
        path = f"/v1/responses/{made['id']}"
        for method, where in (
            ("GET", path),
            ("GET", f"{path}?stream=true"),
            ("DELETE", path),
            ("POST", f"{path}/cancel"),
        ):
            status, told = await get(served, where, method=method, headers=other)
            assert (status, told["error"]["code"]) == (404, "response_not_found")
        more = {"input": "y", "previous_response_id": made["id"]}
        status, told = await get(served, "/v1/responses", method="POST", json=more, headers=other)
        assert (status, told["error"]["code"]) == (404, "previous_response_not_found")
        async with socket_to(served, headers=other) as socket:
            await socket.send_json({"type": "response.resume", "response_id": made["id"]})
            told = await socket.receive_json(timeout=PATIENCE)
            assert told["error"]["code"] == "response_not_found"
        assert (await get(served, path, headers=mine))[0] == 200
        async with socket_to(served, headers=mine) as socket:
            answered = await ask(socket, input="y", previous_response_id=made["id"])
            assert answered[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=maybe", "stream"),
        ("starting_after=1", "starting_after"),
        ("stream=true&starting_after=x", "starting_after"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=1&starting_after=2", "starting_after"),
        ("stream=true&starting_after=1&starting_after=1", "starting_after"),
        ("stream=true&stream=false", "stream"),
    ],
)
async def test_queries_that_mean_nothing_are_refused(query: str, param: str) -> None:
    async with serving(FakeEngine("yes")) as served:
        _, made = await get(served, "/v1/responses", method="POST", json={"input": "x"})
        status, told = await get(served, f"/v1/responses/{made['id']}?{query}")
        assert (status, told["error"]["param"]) == (400, param)


async def test_a_resume_that_means_nothing_is_refused_and_the_lane_goes_on() -> None:
    async with serving(FakeEngine("yes")) as served, socket_to(served) as socket:
        for fields, code, param in (
            ({}, "missing_required_parameter", "response_id"),
            ({"response_id": 7}, "invalid_type", "response_id"),
            ({"response_id": "resp_none"}, "response_not_found", "response_id"),
        ):
            await socket.send_json({"type": "response.resume", **fields})
            event = await socket.receive_json(timeout=PATIENCE)
            assert (event["error"]["code"], event["error"]["param"]) == (code, param)
        made = (await ask(socket, input="x"))[-1]["response"]["id"]
        fields = {"response_id": made, "starting_after": "soon"}
        await socket.send_json({"type": "response.resume", **fields})
        event = await socket.receive_json(timeout=PATIENCE)
        assert event["error"]["param"] == "starting_after"
        assert is_last((await ask(socket, input="x"))[-1])


async def test_responses_are_forgotten_after_their_time() -> None:
    async with serving(FakeEngine("yes"), keep_seconds=0.1) as served:
        _, made = await get(served, "/v1/responses", method="POST", json={"input": "x"})
        assert len(served.gateway.kept) == 1
        await until(lambda: len(served.gateway.kept) == 0)
        assert (await get(served, f"/v1/responses/{made['id']}"))[0] == 404


async def test_what_is_kept_is_bounded_and_what_runs_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST_KEPT", 3)
    engine = FakeEngine(ENDLESS, pace=0.02)
    async with serving(engine) as served:
        body: dict[str, Any] = {"input": "x", "background": True}
        _, running = await get(served, "/v1/responses", method="POST", json=body)
        await until(lambda: engine.running == 1)
        engine.answer, engine.pace = "yes", 0.0
        made = []
        for _ in range(4):
            _, one = await get(served, "/v1/responses", method="POST", json={"input": "x"})
            made.append(one["id"])
        assert len(served.gateway.kept) == 3
        found = zip([running["id"], *made], (200, 404, 404, 200, 200), strict=True)
        for response_id, status in found:
            assert (await get(served, f"/v1/responses/{response_id}"))[0] == status


async def test_the_end_of_the_gateway_ends_what_runs_in_the_background() -> None:
    engine = FakeEngine(ENDLESS, pace=0.05)
    async with serving(engine) as served:
        body = {"input": "x", "background": True}
        await get(served, "/v1/responses", method="POST", json=body)
        await until(lambda: engine.running == 1)
    assert engine.running == 0
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "background response"]


async def test_a_background_response_that_fails_says_so() -> None:
    engine = FakeEngine("abc", failure=RuntimeError("the kernel failed"))
    async with serving(engine) as served:
        body = {"input": "x", "background": True}
        _, made = await get(served, "/v1/responses", method="POST", json=body)
        await until(lambda: not served.gateway.kept.find(made["id"], None).running)
        _, found = await get(served, f"/v1/responses/{made['id']}")
        assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
        assert served.gateway.metrics.refused["server_error"] == 1
