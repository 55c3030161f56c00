"""Predicted outputs: what a request says its answer will be, made ready to draft from."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.engine.closing import outcome_of
from gateway.engine.names import JOIN, PREDICTION
from gateway.engine.requests import Prediction, Speculation
from models.drafters.predicted import PredictedText, Vocabulary

LONGEST_PREDICTED = 31
"""Draft tokens per round at most where an answer was predicted: what comes as predicted comes in
long pieces."""

_ADAPTING = ("cost", "slo", "confidence")
_SHORT_TEXT = 4096
"""Characters that are encoded at once; more would hold up running streams, and a thread does it."""


async def read(prediction: Prediction, vocabulary: Vocabulary, most: int) -> PredictedText:
    """Once for all answers of a request, `most` tokens of it: no answer is longer."""
    if prediction.made is None:
        if len(prediction.text) <= _SHORT_TEXT:
            prediction.made = PredictedText(prediction.text, vocabulary, most)
        else:
            prediction.made = await _made(prediction, vocabulary, most)
    return prediction.made


async def _made(prediction: Prediction, vocabulary: Vocabulary, most: int) -> PredictedText:
    """In a thread. An answer that is cancelled must not end what others wait for."""
    if prediction.making is None:
        prediction.making = asyncio.get_running_loop().run_in_executor(
            None, PredictedText, prediction.text, vocabulary, most
        )
    return await outcome_of(prediction.making)


def with_room(speculation: Speculation) -> Speculation:
    """`speculation`, whose names are known: where a prediction drafts, and the length is left to a
    policy that adapts it, with longer drafts than usual."""
    predicted = PREDICTION in speculation.drafter.split(JOIN)
    if not predicted or speculation.length is not None or speculation.policy not in _ADAPTING:
        return speculation
    return replace(speculation, length=LONGEST_PREDICTED)
