"""The log: lines of text, or one JSON object a line; each names the request that it is about."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from gateway.trace import CURRENT

SAID = "outpace"
"""The logger of what serve says of itself."""

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FORMATS = ("text", "json")


class TextFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        line = super().formatMessage(record)
        trace = CURRENT.get()
        return line if trace is None else f"{line} [{trace.id}]"


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`; `request_id`, `exception` and a record's own `fields`
    where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = CURRENT.get()
        if trace is not None:
            line["request_id"] = trace.id
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Escaped: neither a line break nor a lone surrogate can break a line.
        return json.dumps(line, ensure_ascii=True, default=str)


class PatientHandler(logging.StreamHandler[TextIO]):
    """Lines that cannot be written, on a full disk for example, are lost; nothing else is. How many
    were is said with the first that can."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        lost, self._lost = self._lost, 0
        super().emit(record)
        if lost and not self._lost:
            told = (logging.WARNING, __file__, 0, "%d lines of the log were lost", (lost,), None)
            super().emit(logging.LogRecord(__name__, *told))
        elif lost:
            self._lost += lost

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        if isinstance(sys.exc_info()[1], OSError):
            self._lost += 1
        else:
            super().handleError(record)


def configure_logs(level: str, form: str) -> None:
    """Everything to stderr but what serve says of itself, which goes to stdout."""
    handler, said = PatientHandler(sys.stderr), PatientHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(TEXT))
    said.setFormatter(
        JsonFormatter() if form == "json" else logging.Formatter(f"{SAID}: %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # It would repeat what a client offers as subprotocols, and that may be a key.
    logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
    logger = logging.getLogger(SAID)
    logger.handlers = [said]
    logger.propagate = False
    logger.setLevel(logging.INFO)
