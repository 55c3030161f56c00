"""Reading typed fields out of decoded JSON, with errors that name the field."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sized
from typing import Any, TypeGuard, TypeVar

import orjson

from gateway.http.nesting import deeper_than
from gateway.limits import DEEPEST
from models.errors import UserError

T = TypeVar("T")
N = TypeVar("N", int, float)
BEYOND_INTEGERS = float(1 << 63)
MOST_ITEMS = 4096
"""Messages of a request, and parts of a message."""

NAMES: Mapping[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "an object",
    list: "an array",
}


def decode_object(raw: str | bytes, nesting: int = DEEPEST) -> dict[str, Any]:
    """A JSON object, nested no deeper than `nesting`.

    Raises `UserError` `invalid_json` or `invalid_type`.
    """
    if deeper_than(raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw, nesting):
        raise _too_deep()
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UserError(f"The message is not valid JSON: {error}.", code="invalid_json") from None
    try:
        # 1024 levels are read but 254 written, and answers repeat parts of a request, wrapped.
        orjson.dumps([[[document]]])
    except orjson.JSONEncodeError:
        raise _too_deep() from None
    if not isinstance(document, dict):
        raise wrong_type(None, "an object", document)
    return document


def _too_deep() -> UserError:
    return UserError("The message is nested too deeply.", code="invalid_json")


def typed(value: Any, kind: type[T], param: str) -> T:
    """`value` if it is of `kind` (a boolean is no number, an integer is a number)."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return value  # type: ignore[return-value]
    if kind is int and beyond_integers(value):
        raise UserError(
            f"{param} is out of range: {value} is no integer of 64 bits.",
            code="unsupported_value",
            param=param,
        )
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise wrong_type(param, NAMES[kind], value)
    return value


def beyond_integers(value: Any) -> TypeGuard[float]:
    """A float that the decoder may have made of an integer that has more than 64 bits."""
    return isinstance(value, float) and abs(value) >= BEYOND_INTEGERS


def optional(document: Mapping[str, Any], name: str, kind: type[T], prefix: str = "") -> T | None:
    """The field, or None where it is absent or null."""
    value = document.get(name)
    return None if value is None else typed(value, kind, prefix + name)


def required(document: Mapping[str, Any], name: str, kind: type[T], prefix: str = "") -> T:
    value = document.get(name)
    if value is None:
        raise missing(prefix + name)
    return typed(value, kind, prefix + name)


def few(value: Sized, most: int, param: str) -> None:
    """Raises `UserError` where there are more: reading them would hold up running streams."""
    if len(value) > most:
        raise UserError(
            f"{param} has {len(value)} entries; at most {most} are taken.",
            code="unsupported_value",
            param=param,
        )


def at_least(value: int | None, least: int, param: str) -> int | None:
    if value is not None and value < least:
        raise invalid(param, f"must be at least {least}, not {value}")
    return value


def number(value: Any, param: str) -> float:
    """A finite number, as a float."""
    given = typed(value, float, param)
    try:
        finite = math.isfinite(given)
    except OverflowError:  # an integer beyond every float
        finite = False
    if not finite:
        raise invalid(param, "must be a finite number")
    return float(given)


def in_range(value: N, least: N, most: N, param: str) -> N:
    if not least <= value <= most:
        raise out_of_range(value, least, most, param)
    return value


def one_of(value: str, known: Iterable[str], param: str) -> str:
    """`value` if known; otherwise an error that lists what is accepted."""
    known = tuple(known)
    if value not in known:
        names = ", ".join(map(repr, known))
        raise unsupported(param, value, names if len(known) == 1 else f"one of {names}")
    return value


def only_known(document: Mapping[str, Any], known: Iterable[str], param: str) -> None:
    """For objects of our own: an unknown key is an error that names the nearest."""
    known = tuple(known)
    for key in document:
        if key not in known:
            near = difflib.get_close_matches(short(key), known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known are {', '.join(known)}."
            raise UserError(
                f"{param} has no field {short(key)!r}.{hint}",
                code="unsupported_value",
                param=f"{param}.{short(key)}",
            )


def invalid(param: str, problem: str) -> UserError:
    return UserError(f"{param} {problem}.", code="invalid_value", param=param)


def out_of_range(value: float, least: float, most: float, param: str) -> UserError:
    return UserError(
        f"{param} must be from {least} to {most}, not {value}.",
        code="unsupported_value",
        param=param,
    )


def missing(param: str) -> UserError:
    return UserError(f"{param} is missing.", code="missing_required_parameter", param=param)


def unsupported(param: str, value: Any, accepted: str) -> UserError:
    shown = short(orjson.dumps(value).decode(), 60)
    return UserError(
        f"{param} {shown} is not supported; accepted: {accepted}.",
        code="unsupported_value",
        param=param,
    )


def wrong_type(param: str | None, expected: str, value: Any) -> UserError:
    found = "null" if value is None else NAMES.get(type(value), type(value).__name__)
    subject = param or "The message"
    return UserError(
        f"{subject} must be {expected}, not {found}.", code="invalid_type", param=param
    )


def short(text: str, most: int = 80) -> str:
    """At most so many characters of what a client sent: errors repeat it."""
    return text if len(text) <= most else text[: most - 3] + "..."
