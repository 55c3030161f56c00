"""Whoever waits for a package while the gateway closes is told so, administrators as well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member
from gateway.http.app import drain
from gateway.http.responses.routes import ResponsesRoutes
from gateway.http.sse import Streaming
from models.errors import DeviceError, UserError
from tests.fleet_support import Starts, fleet_of, furnish
from tests.http_serving import serving, until
from tests.test_http_packages import change

Wait = Callable[[Fleet, Member], Awaitable[object]]

WAYS: dict[str, Wait] = {
    "load": lambda fleet, member: member.load(),
    "load it whether or not it fits": lambda fleet, member: member.load(force=True),
    "load it anew": lambda fleet, member: member.replace(),
    "switch to it": lambda fleet, member: fleet.switch(member.name),
    "ask it": lambda fleet, member: fleet.pick(member.name),
}


async def code_of(waiting: Awaitable[object]) -> str:
    """Of the error that it fails with, soon."""
    with pytest.raises(UserError) as error:
        async with asyncio.timeout(5):
            await waiting
    return error.value.code


async def loading(fleet: Fleet, starts: Starts, wait: Wait) -> list[asyncio.Task[object]]:
    """Two who wait for "b", which does not come to be loaded."""
    starts.gate.clear()
    member = fleet.member("b")

    async def waiting() -> object:
        return await wait(fleet, member)

    tasks = [asyncio.create_task(waiting()) for _ in range(2)]
    await until(lambda: starts.asked == ["a", "b"])
    return tasks


@pytest.mark.parametrize("wait", WAYS.values(), ids=WAYS)
async def test_who_waits_when_it_closes(wait: Wait) -> None:
    fleet, starts = await fleet_of("a", "b")
    tasks = await loading(fleet, starts, wait)
    assert await fleet.close()
    assert [await code_of(task) for task in tasks] == ["draining"] * 2
    # Nothing is begun any more.
    assert await code_of(wait(fleet, fleet.member("b"))) == "draining"
    assert starts.asked == ["a", "b"]


@pytest.mark.parametrize("wait", WAYS.values(), ids=WAYS)
async def test_who_waits_when_it_drains_is_told_at_once(wait: Wait) -> None:
    """Not only when what loads was cut: answers that are running may take their time."""
    fleet, starts = await fleet_of("a", "b")
    tasks = await loading(fleet, starts, wait)
    fleet.drain()
    assert [await code_of(task) for task in tasks] == ["draining"] * 2
    assert await fleet.close()


@pytest.mark.parametrize("wait", WAYS.values(), ids=WAYS)
async def test_who_leaves_is_cancelled_and_ends_nothing(wait: Wait) -> None:
    fleet, starts = await fleet_of("a", "b")
    leaving, staying = await loading(fleet, starts, wait)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    starts.gate.set()
    await staying
    assert fleet.member("b").state == "loaded"
    assert starts.asked == ["a", "b"]


async def test_an_administrator_is_told_that_a_package_was_given_up() -> None:
    """Its device fails, and it does not come back: who has it loaded anew meanwhile waits for
    nothing."""
    fleet, starts = await fleet_of("a")
    member = fleet.member("a")
    starts.errors.extend(RuntimeError("no device") for _ in range(5))
    starts.gate.clear()
    assert member.loaded is not None
    member.loaded.failed(DeviceError("lost"))
    await until(lambda: starts.asked == ["a", "a"])
    replacing = asyncio.create_task(member.replace())
    await asyncio.sleep(0)
    starts.gate.set()
    assert await code_of(replacing) == "package_failed"
    assert member.state == "failed"


@pytest.mark.parametrize("what", ["load", "switch"])
async def test_it_is_an_answer_on_the_wire(what: str) -> None:
    async with serving(None) as served:
        starts = await furnish(served.gateway, "a", "b")
        starts.gate.clear()
        asking = asyncio.create_task(change(served, what, "b"))
        await until(lambda: starts.asked == ["a", "b"])
        await drain(served.gateway, ResponsesRoutes(served.gateway, Streaming()))
        status, told = await asking
        assert (status, told["error"]["code"]) == (503, "draining")
