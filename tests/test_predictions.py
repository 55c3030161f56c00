"""Predictions as engines read them: once for all choices, and with room for what they bring."""

from __future__ import annotations

import asyncio

import pytest

from gateway.engine.predictions import LONGEST_PREDICTED, read, with_room
from gateway.engine.requests import Prediction, Speculation
from gateway.settings import MAX_DRAFT_LENGTH
from tests.prediction_support import Words

MOST = 100_000


class CountingWords(Words):
    """Counts the texts that it encodes."""

    encoded = 0

    def encode(self, text: str) -> list[int]:
        self.encoded += 1
        return super().encode(text)


@pytest.mark.parametrize("times", [1, 3000], ids=["short", "long"])
async def test_it_is_read_once_and_shared(times: int) -> None:
    words, prediction = CountingWords(), Prediction("to be or not " * times)
    first = await read(prediction, words, MOST)
    assert await read(prediction, words, MOST) is first is prediction.made
    assert first.raw.decode() == prediction.text
    assert words.encoded == 1


async def test_answers_that_read_it_at_once_share_it() -> None:
    words, prediction = CountingWords(), Prediction("to be or not " * 3000)
    made = await asyncio.gather(*(read(prediction, words, MOST) for _ in range(4)))
    assert all(each is made[0] for each in made)
    assert words.encoded == 1


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    words, prediction = CountingWords(), Prediction("to be or not " * 3000)
    first, *others = [asyncio.create_task(read(prediction, words, MOST)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    made = await asyncio.gather(*others)
    assert made[0] is made[1] is prediction.made
    assert first.cancelled()
    assert words.encoded == 1


@pytest.mark.parametrize("times", [1, 3000], ids=["short", "long"])
async def test_no_more_of_it_is_kept_than_an_answer_can_have(times: int) -> None:
    words, prediction = CountingWords(), Prediction("to be or not " * times)
    made = await read(prediction, words, 3)
    assert made.ids == tuple(words.encode("to be or"))
    assert made.raw == b"to be or"


def test_the_text_alone_makes_it_equal() -> None:
    assert Prediction("a") == Prediction("a") != Prediction("b")


@pytest.mark.parametrize("policy", ["cost", "slo", "confidence"])
def test_policies_that_adapt_have_room_for_long_drafts(policy: str) -> None:
    speculation = Speculation("prediction+ngram", policy, tpot_ms=1.0)  # type: ignore[arg-type]
    assert with_room(speculation).length == LONGEST_PREDICTED <= MAX_DRAFT_LENGTH


@pytest.mark.parametrize(
    "speculation",
    [
        Speculation("ngram"),
        Speculation("off"),
        Speculation("prediction", length=3),
        Speculation("prediction", "fixed", 5),
        Speculation("prediction", "ema-tiers"),
        Speculation("prediction", "off"),
    ],
)
def test_what_was_said_otherwise_stays(speculation: Speculation) -> None:
    assert with_room(speculation) == speculation
