"""Lines of the log: text, or one JSON object each."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import Any

import pytest

from gateway.logs import TEXT, JsonFormatter, TextFormatter
from gateway.trace import CURRENT, Trace


def record(message: str, *arguments: object, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "gateway.test", logging.WARNING, __file__, 1, message, arguments, more.pop("exc_info", None)
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def trace() -> Any:
    trace = Trace("req_7", "GET", "/")
    token = CURRENT.set(trace)
    yield trace
    CURRENT.reset(token)


def test_a_json_line_has_its_time_level_logger_and_message() -> None:
    line = json.loads(JsonFormatter().format(record("cutting %d answers", 3)))
    when = datetime.fromisoformat(line.pop("time"))
    assert when.tzinfo is not None
    assert line == {
        "level": "warning",
        "logger": "gateway.test",
        "message": "cutting 3 answers",
    }


def test_a_json_line_names_its_request_and_has_its_fields(trace: Trace) -> None:
    line = json.loads(JsonFormatter().format(record("done", fields={"status": 200, "tau": 1.5})))
    assert (line["request_id"], line["status"], line["tau"]) == ("req_7", 200, 1.5)


@pytest.mark.parametrize("text", ["two\nlines", "\ud800 alone", '"quoted"', "ä\u2028", "\x1b[2J"])
def test_whatever_is_said_stays_one_line(text: str) -> None:
    line = JsonFormatter().format(record("%s", text))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == text


def test_an_exception_is_one_field() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        line = JsonFormatter().format(record("failed", exc_info=sys.exc_info()))
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: broken")


def test_a_text_line_names_its_request(trace: Trace) -> None:
    line = TextFormatter(TEXT).format(record("slow"))
    assert line.endswith(" WARNING gateway.test: slow [req_7]")


def test_a_text_line_of_no_request_names_none() -> None:
    assert TextFormatter(TEXT).format(record("slow")).endswith(" gateway.test: slow")
