"""`prediction`: what a client says the answer will be, the same on every endpoint.

OpenAI has the field for chat completions alone, and refuses beside it several choices, functions,
log-probabilities, penalties and `max_completion_tokens`. Here a prediction decides nothing but the
time, so it goes with everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.requests import Prediction
from gateway.http.content import text_content
from gateway.http.fields import one_of, required, typed
from models.errors import UserError

FIELD = "prediction"
KIND = "content"
MOST_CHARACTERS = 1 << 17


def parse_prediction(document: Mapping[str, Any]) -> Prediction | None:
    """What is predicted, None where that is nothing. Raises `UserError` that names the field."""
    value = document.get(FIELD)
    if value is None:
        return None
    typed(value, dict, FIELD)
    one_of(required(value, "type", str, f"{FIELD}."), (KIND,), f"{FIELD}.type")
    param = f"{FIELD}.content"
    text = text_content(value.get("content"), param, ("text",), '"text"')
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"{param} has {len(text)} characters; at most {MOST_CHARACTERS} are taken.",
            code="unsupported_value",
            param=param,
        )
    return Prediction(text) if text else None
