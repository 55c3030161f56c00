"""The one table from what went wrong to what a client is told."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from models.errors import UserError

log = logging.getLogger(__name__)

STATUS: Mapping[str, int] = MappingProxyType(
    {
        "body_timeout": 408,
        "constraint_failed": 400,
        "context_length_exceeded": 400,
        "device_error": 503,
        "draining": 503,
        "events_expired": 410,
        "forbidden_host": 403,
        "forbidden_origin": 403,
        "graph_invalid": 503,
        "invalid_api_key": 401,
        "invalid_json": 400,
        "invalid_type": 400,
        "invalid_value": 400,
        "loading": 503,
        "message_too_large": 413,
        "method_not_allowed": 405,
        "missing_required_parameter": 400,
        "model_not_found": 404,
        "not_administrator": 403,
        "not_deleted": 500,
        "not_found": 404,
        "not_loaded": 503,
        "out_of_memory": 503,
        "package_changed": 503,
        "package_failed": 503,
        "previous_response_not_found": 400,
        "provider_unavailable": 503,
        "queue_full": 429,
        "queue_timeout": 503,
        "rate_limit_exceeded": 429,
        "request_timeout": 504,
        "response_not_found": 404,
        "server_error": 500,
        "template_error": 400,
        "unknown_drafter": 400,
        "unloaded": 503,
        "unsupported_value": 400,
        "websocket_connection_limit_reached": 429,
        "websocket_stream_limit_reached": 429,
    }
)
# The openai clients map 404 to NotFoundError; on a socket the public code goes with 400.
HTTP_STATUS: Mapping[str, int] = MappingProxyType({"previous_response_not_found": 404})
RETRY_AFTER: Mapping[str, int] = MappingProxyType(
    {
        "queue_full": 1,
        "device_error": 2,
        "draining": 5,
        "loading": 5,
        "queue_timeout": 5,
        "unloaded": 1,
    }
)
# What the operator is to know of the machine, and clients are not.
PUBLIC: Mapping[str, str] = MappingProxyType(
    {
        "graph_invalid": "A graph of the model could not be loaded; the gateway's log says why.",
        "not_deleted": "What is kept on disk could not be deleted; the log says why.",
        "package_changed": "The package was changed since it was loaded; it has to be loaded anew.",
        "provider_unavailable": "The device of the model is not there; the gateway's log says why.",
    }
)


class RetryError(UserError):
    """Not now: `retry_after` seconds from now it may do."""

    def __init__(self, message: str, *, code: str, retry_after: float) -> None:
        super().__init__(message, code=code)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class WireError:
    """An error as clients see it. `retry_after` is in whole seconds."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None

    @property
    def kind(self) -> str:
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    def envelope(self) -> dict[str, Any]:
        """The `error` object, the same over HTTP and on a socket."""
        return {
            "type": self.kind,
            "code": self.code,
            "message": self.message,
            "param": self.param,
        }

    def event(self, stream_id: str | None = None, request_id: str | None = None) -> dict[str, Any]:
        """The `error` event of a socket."""
        known = {
            "stream_id": stream_id,
            "request_id": request_id,
            "retry_after": self.retry_after,
        }
        event: dict[str, Any] = {
            "type": "error",
            "status": self.status,
            "error": self.envelope(),
        }
        return event | {name: value for name, value in known.items() if value is not None}

    def response_error(self) -> dict[str, Any]:
        """The `error` of a failed response, whose codes are a closed list in the clients."""
        codes = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
        return {"code": codes.get(self.status, "server_error"), "message": self.message}

    def over_http(self) -> WireError:
        status = HTTP_STATUS.get(self.code, self.status)
        return WireError(status, self.code, self.message, self.param, self.retry_after)


def wire_error(error: BaseException) -> WireError:
    """`UserError` as it says; anything else is ours, and its text stays in the log."""
    if isinstance(error, UserError):
        message = error.message
        if error.code in PUBLIC:
            log.error("%s", message)
            message = PUBLIC[error.code]
        status = STATUS.get(error.code, 400)
        return WireError(status, error.code, message, error.param, _retry_after(error))
    return WireError(500, "server_error", "The gateway failed on this request; its log says why.")


def _retry_after(error: UserError) -> int | None:
    if isinstance(error, RetryError):
        return max(1, math.ceil(error.retry_after))
    return RETRY_AFTER.get(error.code)
