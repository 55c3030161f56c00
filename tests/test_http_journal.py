"""The events of a response, read later, again, and while they come."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.http.responses.events import ServerEvent
from gateway.http.responses.journal import Entry, Journal, starting_after
from models.errors import UserError


def entry(number: int, text: str = "x") -> Entry:
    return Entry.of(ServerEvent("response.output_text.delta", number, {"delta": text}))


def written(count: int, *, ended: bool = True, most_bytes: int = 1 << 20) -> Journal:
    journal = Journal(most_bytes)
    for number in range(count):
        journal.append(entry(number))
    if ended:
        journal.end()
    return journal


async def numbers(journal: Journal, after: int = -1) -> list[int]:
    return [each.number async for each in journal.read(after)]


@pytest.mark.parametrize("after", [-1, 0, 2, 3, 4])
async def test_what_is_behind_a_number_is_read_once_and_in_order(after: int) -> None:
    assert await numbers(written(5), after) == list(range(after + 1, 5))


async def test_an_empty_journal_that_has_ended_says_nothing() -> None:
    journal = written(0)
    assert (await numbers(journal), journal.last) == ([], -1)


async def test_readers_follow_what_is_written_each_at_its_own_pace() -> None:
    journal = written(2, ended=False)
    early = asyncio.create_task(numbers(journal))
    late = asyncio.create_task(numbers(journal, 1))
    ahead = asyncio.create_task(numbers(journal, 3))
    for number in range(2, 6):
        await asyncio.sleep(0)
        journal.append(entry(number))
    journal.append(entry(6))
    await asyncio.sleep(0)
    assert not any(reader.done() for reader in (early, late, ahead))
    journal.end()
    assert await early == list(range(7))
    assert await late == list(range(2, 7))
    assert await ahead == [4, 5, 6]
    assert journal.ended


async def test_a_reader_that_left_is_forgotten() -> None:
    journal = written(1, ended=False)
    reading = asyncio.create_task(numbers(journal))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    journal.append(entry(1))
    journal.end()
    assert await numbers(journal) == [0, 1]


async def test_what_is_kept_is_bounded_and_a_gap_is_an_error() -> None:
    size = entry(0).weight
    journal = written(10, most_bytes=3 * size)
    assert journal.bytes == 3 * size
    assert await numbers(journal, 6) == [7, 8, 9]
    journal.require(6)
    for after in (-1, 5):
        with pytest.raises(UserError, match="Events before number 7 of") as error:
            journal.require(after)
        assert (error.value.code, error.value.param) == ("events_expired", "starting_after")
        with pytest.raises(UserError, match="Events before number 7 of"):
            await numbers(journal, after)


async def test_behind_the_last_event_there_is_nothing_and_beyond_it_an_error() -> None:
    journal = written(3, ended=True)
    assert await numbers(journal, 2) == []
    with pytest.raises(UserError, match="the last event is number 2") as error:
        await numbers(journal, 3)
    assert (error.value.code, error.value.param) == ("invalid_value", "starting_after")


async def test_a_reader_that_fell_behind_is_told_so() -> None:
    size = entry(0).weight
    journal = written(2, ended=False, most_bytes=2 * size)
    reader = journal.read()
    assert (await anext(reader)).number == 0
    for number in range(2, 6):
        journal.append(entry(number))
    with pytest.raises(UserError, match="not kept any more"):
        await anext(reader)


async def test_the_newest_event_is_kept_however_large() -> None:
    journal = Journal(10)
    journal.append(entry(0, "y" * 1000))
    journal.end()
    (kept,) = [each async for each in journal.read()]
    assert json.loads(kept.body)["delta"] == "y" * 1000


def test_a_lane_is_named_in_the_event() -> None:
    one = entry(3, 'quote " and \\ and }')
    plain = json.loads(one.on_lane(None))
    assert plain == {
        "type": "response.output_text.delta",
        "sequence_number": 3,
        "delta": 'quote " and \\ and }',
    }
    assert json.loads(one.on_lane("a.b-c_d")) == {**plain, "stream_id": "a.b-c_d"}


@pytest.mark.parametrize(("value", "after"), [(None, -1), (0, 0), (7, 7), ("0", 0), ("42", 42)])
def test_numbers_of_events(value: object, after: int) -> None:
    assert starting_after(value) == after


@pytest.mark.parametrize(
    "value", [-1, "-1", "", "x", "1.0", 1.0, True, 10**9, "1" * 10, [], "²", "1 ", "1\n"]
)
def test_what_is_no_number_of_an_event(value: object) -> None:
    with pytest.raises(UserError) as error:
        starting_after(value)
    assert (error.value.code, error.value.param) == ("invalid_value", "starting_after")
