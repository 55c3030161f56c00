"""Predicted outputs: what a request says its answer will be, made ready to draft from."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.engine.names import JOIN, PREDICTION
from gateway.engine.requests import Prediction, Speculation
from models.drafters.predicted import PredictedText, Vocabulary

LONGEST_PREDICTED = 31
"""Draft tokens per round at most where an answer was predicted: what comes as predicted comes in
long pieces."""

_ADAPTING = ("cost", "slo", "confidence")
_SHORT_TEXT = 4096
"""Characters that are encoded at once; more would hold up running streams, and a thread does it."""


async def read(prediction: Prediction, vocabulary: Vocabulary) -> PredictedText:
    """Once for all choices of a request."""
    if prediction.made is None:
        if len(prediction.text) <= _SHORT_TEXT:
            prediction.made = PredictedText(prediction.text, vocabulary)
        else:
            made = await asyncio.to_thread(PredictedText, prediction.text, vocabulary)
            # Several choices may have begun it; they share the one that was there first.
            prediction.made = prediction.made or made
    return prediction.made


def with_room(speculation: Speculation) -> Speculation:
    """`speculation`, whose names are known: where a prediction drafts, and the length is left to a
    policy that adapts it, with longer drafts than usual."""
    predicted = PREDICTION in speculation.drafter.split(JOIN)
    if not predicted or speculation.length is not None or speculation.policy not in _ADAPTING:
        return speculation
    return replace(speculation, length=LONGEST_PREDICTED)
