"""Who asks: whose n-grams may be drafted, and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gateway.http.fields import optional

FIELDS = ("user", "safety_identifier")


def user_of(document: Mapping[str, Any], api_key: str | None) -> str | None:
    """An opaque name of the key together with whom the request says it is for: those of one key
    who are told apart share nothing. None where neither is known."""
    said = [optional(document, name, str) or None for name in FIELDS]
    return named(api_key, next(filter(None, said), None))


def named(api_key: str | None, said: str | None) -> str | None:
    if api_key is None and said is None:
        return None
    return hashlib.sha256(json.dumps([api_key, said]).encode()).hexdigest()
