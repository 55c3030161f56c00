"""Several packages: which one answers, when it is loaded, when it is freed."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from typing import Any

import pytest

from gateway.fleet.fleet import Fleet
from gateway.fleet.terms import Failures, Source, Terms
from models import memory
from models.errors import DeviceError, UserError
from models.memory import MemoryNeed
from models.nvml import FreeMemory
from tests.fleet_support import NO_PAUSE, Starts, fleet_of, source
from tests.http_serving import until


async def refused(waited: Any) -> UserError:
    with pytest.raises(UserError) as error:
        await waited
    return error.value


async def test_the_first_is_the_default_and_the_only_one_that_is_loaded() -> None:
    fleet, starts = await fleet_of("a", "b")
    use = await fleet.pick(None)
    assert use.engine is starts.engines[0]
    assert starts.asked == ["a"]
    assert [member.state for member in fleet] == ["loaded", "unloaded"]
    assert (await fleet.pick("a")).engine is use.engine


async def test_an_unknown_one_is_told_which_there_are() -> None:
    fleet, _ = await fleet_of("a", "b")
    error = await refused(fleet.pick("c" * 200))
    assert (error.code, error.param) == ("model_not_found", "model")
    assert "'a', 'b'" in error.message
    assert len(error.message) < 200


async def test_two_of_one_name_are_refused() -> None:
    fleet, _ = await fleet_of("a")
    with pytest.raises(UserError, match="two packages are called 'a'"):
        fleet.add(source("a"), Starts())


async def test_nobody_waits_for_the_first_start() -> None:
    fleet, _ = await fleet_of("a", started=False)
    assert (await refused(fleet.pick("a"))).code == "loading"
    assert (await refused(Fleet().pick(None))).code == "loading"


async def test_a_request_loads_its_package_and_others_wait_for_that() -> None:
    fleet, starts = await fleet_of("a", "b")
    starts.gate.clear()
    asked = [asyncio.create_task(fleet.pick("b")) for _ in range(3)]
    member = fleet.member("b")
    await until(lambda: member.waiting == 3)
    assert member.state == "loading"
    # A request that leaves does not end what others wait for.
    asked[0].cancel()
    await until(lambda: member.waiting == 2)
    starts.gate.set()
    uses = await asyncio.gather(*asked[1:])
    assert starts.asked == ["a", "b"]
    assert uses[0].engine is uses[1].engine is starts.engines[1]
    assert (member.state, member.uses, member.waiting) == ("loaded", 2, 0)


async def test_the_waiting_is_bounded_in_number_and_time() -> None:
    terms = Terms(queue=1, load_seconds=0.05)
    fleet, starts = await fleet_of("a", "b", terms=terms)
    starts.gate.clear()
    waiting = asyncio.create_task(fleet.pick("b"))
    await until(lambda: fleet.member("b").waiting == 1)
    error = await refused(fleet.pick("b"))
    assert error.code == "queue_full"
    error = await refused(waiting)
    assert (error.code, "0.05 s" in error.message) == ("loading", True)
    # The load goes on: whoever asks later finds it.
    starts.gate.set()
    assert (await fleet.pick("b")).engine is starts.engines[1]
    assert starts.asked == ["a", "b"]


async def test_a_package_that_cannot_be_loaded_is_said_to_those_who_wait() -> None:
    fleet, starts = await fleet_of("a", "b")
    starts.errors.append(UserError("a file is missing.", code="package_invalid"))
    starts.gate.clear()
    asked = [asyncio.create_task(fleet.pick("b")) for _ in range(2)]
    await until(lambda: fleet.member("b").waiting == 2)
    starts.gate.set()
    errors = [await refused(each) for each in asked]
    assert [error.code for error in errors] == ["package_failed"] * 2
    assert not any("file" in error.message for error in errors), "that is the operator's to know"
    member = fleet.member("b")
    assert (member.state, member.problem) == ("unloaded", "a file is missing.")
    # The next one tries again.
    await fleet.pick("b")
    assert (member.state, member.problem) == ("loaded", None)


async def test_one_that_fails_again_and_again_is_given_up_and_the_others_go_on() -> None:
    fleet, starts = await fleet_of("a", "b", terms=Terms(failures=3))
    starts.errors.extend(RuntimeError("no kernel") for _ in range(3))
    for _ in range(3):
        assert (await refused(fleet.pick("b"))).code == "device_error"
    error = await refused(fleet.pick("b"))
    assert (error.code, "failed 3 times" in error.message) == ("package_failed", True)
    assert len(starts.asked) == 4, "it is not tried any more"
    member = fleet.member("b")
    assert (member.state, member.problem) == ("failed", "no kernel")
    (await fleet.pick("a")).release()
    # Somebody saw to it.
    await member.load()
    assert (member.state, member.failures.total) == ("loaded", 3)


@pytest.mark.parametrize("keep_alive", [0.0, 0.05])
async def test_what_nobody_uses_is_unloaded(keep_alive: float) -> None:
    fleet, starts = await fleet_of("a", terms=Terms(keep_alive=keep_alive))
    member = fleet.member("a")
    await until(lambda: member.state == "unloaded")
    assert starts.engines[0].closed
    use = await fleet.pick(None)
    again = use.again()
    use.release()
    use.release()
    await asyncio.sleep(2 * keep_alive)
    assert member.state == "loaded", "an answer is in the making"
    again.release()
    await until(lambda: member.state == "unloaded")
    assert starts.engines[1].closed
    status = member.status()
    assert status is not None, "what was measured is still known"
    assert (status.running, status.free_slots) == (0, status.slots)


async def test_it_is_kept_where_nothing_else_is_said_and_as_long_as_is_said() -> None:
    fleet, starts = await fleet_of("a")
    member = fleet.member("a")
    (await fleet.pick(None)).release()
    await asyncio.sleep(0.02)
    assert member.state == "loaded"
    member.keep(0)
    await until(lambda: member.state == "unloaded")
    member.keep(-1)
    (await fleet.pick(None)).release()
    await asyncio.sleep(0.02)
    assert member.state == "loaded"
    assert len(starts.engines) == 2


async def test_a_use_that_was_forgotten_ends_too() -> None:
    fleet, _ = await fleet_of("a")
    member = fleet.member("a")
    await fleet.pick(None)
    gc.collect()
    await until(lambda: member.uses == 0)


async def test_unloading_waits_for_answers_and_new_requests_load_again() -> None:
    fleet, starts = await fleet_of("a")
    member = fleet.member("a")
    use = await fleet.pick(None)
    freeing = member.unload()
    assert freeing is not None
    assert member.state == "draining"
    later = await fleet.pick(None)
    assert later.engine is starts.engines[1]
    assert (use.engine is starts.engines[0], starts.engines[0].closed) == (True, False)
    use.release()
    await freeing
    assert (starts.engines[0].closed, member.state, member.uses) == (True, "loaded", 1)
    assert member.unload() is not None
    later.release()
    await until(lambda: member.state == "unloaded")
    assert member.unload() is None


async def test_memory_is_counted_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, starts = Fleet(NO_PAUSE), Starts()
    gib = 1 << 30
    for name in "abc":
        fleet.add(source(name, need=3 * gib), starts)
    # What was loaded took nothing of it yet: slots are taken as they are written.
    monkeypatch.setattr(memory, "available_bytes", lambda: 7 * gib)
    monkeypatch.setattr("gateway.fleet.fleet.resident_bytes", lambda: fleet._resident_before)
    await fleet.start()
    await fleet.pick("b")
    error = await refused(fleet.pick("c"))
    assert error.code == "out_of_memory"
    for figure in ("needs 3.0 GiB", "only 7.0 GiB", "6.0 GiB of it promised", "unload another"):
        assert figure in error.message
    assert starts.asked == ["a", "b"]
    assert fleet.member("c").state == "unloaded", "that is no failure of the package"
    # What they took by now is not available any more, and not promised twice.
    before = fleet._resident_before
    monkeypatch.setattr("gateway.fleet.fleet.resident_bytes", lambda: before + 6 * gib)
    monkeypatch.setattr(memory, "available_bytes", lambda: 2 * gib)
    assert (await refused(fleet.pick("c"))).code == "out_of_memory"
    await fleet.member("c").load(force=True)
    assert fleet.member("c").state == "loaded"


def of_gpu(name: str, need: int) -> Source:
    """A package whose memory is the GPU's."""
    return dataclasses.replace(source(name), need=MemoryNeed(need, 0, 0, gpu=True))


async def test_a_gpus_memory_is_asked_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gib = 1 << 30
    fleet, starts = Fleet(NO_PAUSE), Starts()
    for name in "ab":
        fleet.add(of_gpu(name, 30 * gib), starts)
    fleet.add(source("c", need=3 * gib), starts)
    # A host with less than the package needs is no reason against it.
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * gib)
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(40 * gib))
    await fleet.start()
    # What is loaded has its part of the GPU already; free is what is left.
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(10 * gib))
    error = await refused(fleet.pick("b"))
    assert error.code == "out_of_memory"
    for figure in ("needs 30.0 GiB of the GPU's memory", "only 10.0 GiB of the GPU's memory"):
        assert figure in error.message
    assert "promised" not in error.message
    await fleet.pick("c")
    assert starts.asked == ["a", "c"], "the host has room for what lies there"
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(None, "there is no driver"))
    await fleet.pick("b")
    assert starts.asked == ["a", "c", "b"]
    assert "package b is loaded unchecked" in caplog.text
    assert "there is no driver" in caplog.text


async def test_what_a_gpu_is_just_being_given_is_not_given_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gib = 1 << 30
    fleet, starts = Fleet(NO_PAUSE), Starts()
    for name in "abc":
        fleet.add(of_gpu(name, 3 * gib), starts)
    monkeypatch.setattr(memory, "free_memory", lambda: FreeMemory(5 * gib))
    await fleet.start()
    starts.gate.clear()
    loading = asyncio.create_task(fleet.pick("b"))
    await until(lambda: starts.asked == ["a", "b"])
    error = await refused(fleet.pick("c"))
    assert (error.code, "3.0 GiB of it promised" in error.message) == ("out_of_memory", True)
    starts.gate.set()
    await loading
    await fleet.pick("c")


async def test_a_start_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 30)
    for check in (True, False):
        fleet, starts = Fleet(dataclasses.replace(NO_PAUSE, check_memory=check)), Starts()
        fleet.add(source("a", need=2 << 30), starts)
        if check:
            error = await refused(fleet.start())
            assert error.code == "out_of_memory"
            assert "--no-check-memory" in error.message
        else:
            await fleet.start()
        assert starts.asked == ([] if check else ["a"])


@pytest.mark.parametrize("where", ["before it is tried", "while it is loaded"])
async def test_memory_that_is_not_there_again_is_one_failure_an_attempt(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fleet, starts = await fleet_of("a", terms=dataclasses.replace(NO_PAUSE, failures=4))
    member = fleet.member("a")
    gone = UserError("no room.", code="out_of_memory")
    if where == "while it is loaded":
        starts.errors.extend([gone] * 3)
    else:
        monkeypatch.setattr(memory, "available_bytes", lambda: -1)
    use = await fleet.pick(None)
    use.failed(DeviceError("lost"))
    use.release()
    await until(lambda: member.state == "failed")
    assert member.failures.total == 4, "what it was lost by, and three attempts"
    assert len(starts.asked) == (4 if where == "while it is loaded" else 1)


async def test_a_switch_drops_no_stream() -> None:
    fleet, starts = await fleet_of("a", "b")
    use = await fleet.pick(None)
    starts.gate.clear()
    switching = asyncio.create_task(fleet.switch("b"))
    await until(lambda: fleet.member("b").state == "loading")
    assert (await fleet.pick(None)).engine is use.engine, "the old one answers until then"
    starts.gate.set()
    await switching
    assert fleet.default is fleet.member("b")
    assert (await fleet.pick(None)).engine is starts.engines[1]
    assert fleet.member("a").state == "draining"
    assert not starts.engines[0].closed
    use.release()
    gc.collect()  # those picked above
    await until(lambda: fleet.member("a").state == "unloaded")
    assert starts.engines[0].closed


async def test_a_switch_that_fails_changes_nothing() -> None:
    fleet, starts = await fleet_of("a", "b")
    starts.errors.append(UserError("altered.", code="package_invalid"))
    assert (await refused(fleet.switch("b"))).code == "package_invalid"
    assert fleet.default is fleet.member("a")
    assert (await fleet.pick(None)).engine is starts.engines[0]
    assert not starts.engines[0].closed


async def test_a_switch_to_itself_loads_it_anew() -> None:
    fleet, starts = await fleet_of("a")
    use = await fleet.pick(None)
    await fleet.switch("a")
    assert (await fleet.pick(None)).engine is starts.engines[1]
    assert not starts.engines[0].closed
    use.release()
    await until(lambda: starts.engines[0].closed)
    assert fleet.member("a").state == "loaded"


async def test_runs_take_turns_while_several_are_loaded() -> None:
    fleet, _ = await fleet_of("a", "b")
    assert not fleet.turns.shared
    (await fleet.pick("b")).release()
    assert fleet.turns.shared
    freeing = fleet.member("b").unload()
    assert freeing is not None
    await freeing
    assert not fleet.turns.shared


async def test_a_device_that_fails_frees_its_engine_and_loads_it_again() -> None:
    fleet, starts = await fleet_of("a")
    member = fleet.member("a")
    failed, other = await fleet.pick(None), await fleet.pick(None)
    told = failed.failed(DeviceError("out of memory"))
    assert (told.code, "out of memory" in told.message) == ("device_error", False)
    assert other.failed(DeviceError("out of memory")).code == "device_error"
    assert (member.state, member.problem) == ("reloading", "out of memory")
    assert member.failures.total == 1, "one failure, whoever met it"
    waiting = asyncio.create_task(fleet.pick(None))
    failed.release()
    assert not starts.engines[0].closed, "another answer may end"
    other.release()
    assert (await waiting).engine is starts.engines[1]
    assert starts.engines[0].closed
    assert (member.state, member.problem, member.loads) == ("loaded", None, 2)


class Cut:
    """An answer that ends when it is told to."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def fail(self, error: Exception) -> None:
        self.errors.append(error)


async def test_answers_beside_a_failure_have_a_deadline() -> None:
    fleet, starts = await fleet_of("a")
    use, answer = await fleet.pick(None), Cut()
    use.begin(answer)
    use.failed(DeviceError("lost"))
    await until(lambda: bool(answer.errors))
    (error,) = answer.errors
    assert isinstance(error, UserError)
    assert (error.code, "0.2 s" in error.message) == ("device_error", True)
    use.end(answer)
    await until(lambda: len(starts.engines) == 2)
    assert starts.engines[0].closed


async def test_a_device_that_fails_again_and_again_is_given_up() -> None:
    terms = Terms(first_pause=0.0, failures=3, drain_seconds=0)
    fleet, starts = await fleet_of("a", "b", terms=terms)
    for _ in range(2):
        (await fleet.pick("a")).failed(DeviceError("lost"))
        gc.collect()
        await until(lambda: fleet.member("a").state == "loaded")
    (await fleet.pick("a")).failed(DeviceError("lost"))
    gc.collect()
    await until(lambda: starts.engines[-1].closed)
    assert (await refused(fleet.pick("a"))).code == "package_failed"
    assert (fleet.member("a").state, fleet.member("a").problem) == ("failed", "lost")
    assert (await fleet.pick("b")).engine is starts.engines[-1]


def test_pauses_grow_and_failures_of_long_ago_do_not_count() -> None:
    now = [100.0]
    terms = Terms(failures=3, failure_window=60, first_pause=1, longest_pause=3)
    failures = Failures(terms, now=lambda: now[0])
    assert (failures.pause, failures.too_many) == (0.0, False)
    pauses = []
    for _ in range(3):
        failures.count()
        pauses.append(failures.pause)
        now[0] += 10
    assert pauses == [1, 2, 3]
    assert failures.too_many
    now[0] += 35
    assert (failures.lately, failures.too_many, failures.total) == (2, False, 3)
    failures.forgive()
    assert (failures.lately, failures.total) == (0, 3)


async def test_closing_ends_what_is_loaded_and_what_loads() -> None:
    fleet, starts = await fleet_of("a", "b")
    starts.gate.clear()
    waiting = asyncio.create_task(fleet.pick("b"))
    await until(lambda: fleet.member("b").waiting == 1)
    assert await fleet.close()
    assert starts.engines[0].closed
    assert (await refused(waiting)).code == "draining"
    starts.gate.set()
    assert (await refused(fleet.pick("b"))).code == "draining"
