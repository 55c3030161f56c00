"""Who asks: whose n-grams may be drafted, and kept, and are deleted."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.http.keys import ApiKey
from gateway.http.users import named, user_of
from models.errors import UserError
from tests.fake_engine import FakeEngine
from tests.http_serving import Served, ask, serving, socket_to
from tests.test_http_guard import get

KEYS = ("first-key", "second-key")
OWNERS = tuple(ApiKey.of(key).owner for key in KEYS)
MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"input": "Hi"}),
    ("/v1/chat/completions", {"messages": MESSAGES}),
    ("/v1/completions", {"prompt": "Hi"}),
]


def test_users_are_told_apart_by_key_and_by_name() -> None:
    names = {
        user_of(document, key)
        for key in (None, *KEYS)
        for document in ({}, {"user": "ann"}, {"user": "bob"}, {"safety_identifier": "cid"})
    }
    assert len(names) == 12
    assert user_of({}, None) is None
    assert user_of({"user": ""}, None) is None
    assert user_of({"user": None, "safety_identifier": "ann"}, None) == user_of(
        {"user": "ann"}, None
    )


def test_names_that_are_put_together_are_not_mistaken() -> None:
    assert named("key", 'a", "b') != named('key", "a', "b")
    assert named(None, "null") != named("null", None)


def test_a_name_is_opaque() -> None:
    name = user_of({"user": "ann"}, "secret")
    assert name is not None
    assert "ann" not in name
    assert "secret" not in name


@pytest.mark.parametrize("field", ["user", "safety_identifier"])
def test_a_user_is_a_text(field: str) -> None:
    with pytest.raises(UserError) as error:
        user_of({field: 5}, None)
    assert (error.value.code, error.value.param) == ("invalid_type", field)


async def post(served: Served, path: str, body: dict[str, Any], key: str | None = None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return (await get(served, path, method="POST", json=body, headers=headers))[0]


@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_every_endpoint_says_who_asks(path: str, body: dict[str, Any]) -> None:
    engine = FakeEngine("Hi")
    async with serving(engine, api_keys=KEYS) as served:
        for key in KEYS:
            assert await post(served, path, body, key) == 200
            assert await post(served, path, {**body, "user": "ann"}, key) == 200
    users = [request.user for request in engine.requests]
    assert users == [named(owner, said) for owner in OWNERS for said in (None, "ann")]


@pytest.mark.parametrize(("path", "body"), BODIES)
async def test_without_keys_the_request_says_it(path: str, body: dict[str, Any]) -> None:
    engine = FakeEngine("Hi")
    async with serving(engine) as served:
        assert await post(served, path, body) == 200
        assert await post(served, path, {**body, "user": "ann"}) == 200
    assert [request.user for request in engine.requests] == [None, named(None, "ann")]


async def test_a_socket_is_its_keys() -> None:
    engine = FakeEngine("Hi")
    async with serving(engine, api_keys=KEYS) as served:
        options = {"headers": {"Authorization": f"Bearer {KEYS[1]}"}}
        async with socket_to(served, **options) as socket:
            await ask(socket, input="Hi")
            await ask(socket, input="Hi", safety_identifier="ann")
    assert [request.user for request in engine.requests] == [
        named(OWNERS[1], None),
        named(OWNERS[1], "ann"),
    ]


async def test_who_asks_may_have_it_deleted_and_nobody_else() -> None:
    engine = FakeEngine()
    async with serving(engine, api_keys=KEYS) as served:
        path, headers = "/v1/ngram_store", {"Authorization": f"Bearer {KEYS[0]}"}
        assert (await get(served, path, method="DELETE"))[0] == 401
        done = await get(served, path, method="DELETE", headers=headers)
        assert done == (200, {"object": "ngram_store", "deleted": True})
        await get(served, f"{path}?user=ann", method="DELETE", headers=headers)
    assert engine.forgotten == [named(OWNERS[0], None), named(OWNERS[0], "ann")]


async def test_without_a_key_a_user_must_be_named() -> None:
    engine = FakeEngine()
    async with serving(engine) as served:
        status, body = await get(served, "/v1/ngram_store", method="DELETE")
        assert (status, body["error"]["param"]) == (400, "user")
        assert (await get(served, "/v1/ngram_store?user=ann", method="DELETE"))[0] == 200
    assert engine.forgotten == [named(None, "ann")]
