"""Predictions as engines read them: once for all choices, and with room for what they bring."""

from __future__ import annotations

import asyncio

import pytest

from gateway.engine.predictions import LONGEST_PREDICTED, read, with_room
from gateway.engine.requests import Prediction, Speculation
from gateway.settings import MAX_DRAFT_LENGTH
from tests.prediction_support import Words


class CountingWords(Words):
    """Counts the texts that it encodes."""

    encoded = 0

    def encode(self, text: str) -> list[int]:
        self.encoded += 1
        return super().encode(text)


@pytest.mark.parametrize("times", [1, 3000], ids=["short", "long"])
async def test_it_is_read_once_and_shared(times: int) -> None:
    words, prediction = CountingWords(), Prediction("to be or not " * times)
    first = await read(prediction, words)
    assert await read(prediction, words) is first is prediction.made
    assert first.raw.decode() == prediction.text
    assert words.encoded == 1


async def test_choices_that_read_it_at_once_share_it() -> None:
    words, prediction = Words(), Prediction("to be or not " * 3000)
    made = await asyncio.gather(*(read(prediction, words) for _ in range(4)))
    assert all(each is made[0] for each in made)


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
