"""The document: every route of the gateway, with what it takes and what it answers."""

from __future__ import annotations

from typing import Any

from gateway.http.openapi.answers import ANSWERS
from gateway.http.openapi.requests import REQUESTS
from gateway.http.openapi.shapes import BOOLEAN, STRING, Schema, integer, ref
from gateway.http.responses.journal import MOST_DIGITS

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT = "text/plain"
OPEN_METRICS = "application/openmetrics-text"
ID = {"X-Request-Id": {"description": "Names the request in the log.", "schema": STRING}}
REFUSALS = {"4XX": "It was refused; `code` and `param` say why.", "5XX": "Not now, or a failure."}

Operation = dict[str, Any]


def document(version: str) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Outpace",
            "version": version,
            "description": "A streaming gateway that runs speculative decoding on ONNX Runtime."
            " /v1/responses is a WebSocket as well, which OpenAPI cannot describe.",
        },
        "paths": PATHS,
        "components": {
            "schemas": {**REQUESTS, **ANSWERS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(
    summary: str,
    answers: dict[str, str | None],
    *,
    body: str | None = None,
    parameters: list[dict[str, Any]] | None = None,
    keyed: bool = True,
    status: str = "200",
) -> Operation:
    """`answers` are the media types of a success and the schema of each (None: text)."""
    content = {kind: {"schema": ref(name) if name else STRING} for kind, name in answers.items()}
    refused = {
        code: {
            "description": meaning,
            "headers": ID,
            "content": {JSON: {"schema": ref("Error")}},
        }
        for code, meaning in REFUSALS.items()
    }
    operation: Operation = {
        "summary": summary,
        "responses": {
            status: {"description": summary, "headers": ID, "content": content},
            **refused,
        },
    }
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": ref(body)}},
        }
    if parameters:
        operation["parameters"] = parameters
    if keyed:
        # Asked for where the gateway has keys.
        operation["security"] = [{}, {"key": []}]
    return operation


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": STRING}


def _in_query(name: str, schema: Schema, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _page(summary: str, kind: str) -> Operation:
    """A file for browsers. What it is made of lies under /page/ and is no part of the API."""
    return {
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": {kind: {"schema": STRING}}},
            "304": {"description": "As the browser has it."},
            "4XX": {
                "description": REFUSALS["4XX"],
                "content": {JSON: {"schema": ref("Error")}},
            },
        },
    }


def _state(summary: str, well: str, otherwise: str) -> Operation:
    """A word for whoever watches; it asks for no key."""
    answers = {
        code: {
            "description": meaning,
            "headers": ID,
            "content": {JSON: {"schema": ref("State")}},
        }
        for code, meaning in (("200", well), ("503", otherwise))
    }
    refused = {
        "description": REFUSALS["4XX"],
        "content": {JSON: {"schema": ref("Error")}},
    }
    return {"summary": summary, "responses": {**answers, "4XX": refused}}


RESPONSE_ID = _in_path("response_id")
STREAM = _in_query("stream", BOOLEAN, "Its events, as they were sent and as they come.")
AFTER = _in_query(
    "starting_after",
    integer(0, 10**MOST_DIGITS - 1),
    "With stream: only the events behind the one of this number.",
)

PATHS: dict[str, dict[str, Operation]] = {
    "/": {"get": _page("The page.", "text/html")},
    "/health": {
        "get": _state("Whether the process lives.", "It does.", "A run of the device is stuck.")
    },
    "/ready": {
        "get": _state(
            "Whether the model is loaded and requests are taken.",
            "They are.",
            "Loading, draining, failed, or stuck.",
        )
    },
    "/metrics": {
        "get": _operation(
            "What Prometheus reads; OpenMetrics where Accept names it.",
            {TEXT: None, OPEN_METRICS: None},
        )
    },
    "/openapi.json": {
        "get": {
            "summary": "This document.",
            "responses": {
                "200": {
                    "description": "This document.",
                    "content": {JSON: {"schema": {"type": "object"}}},
                },
                "4XX": {
                    "description": REFUSALS["4XX"],
                    "content": {JSON: {"schema": ref("Error")}},
                },
            },
        }
    },
    "/v1/status": {
        "get": _operation(
            "What runs, and what was measured of the model and of its drafters.",
            {JSON: "Status"},
            parameters=[_in_query("model", STRING, "Of this package; default: the default one.")],
        )
    },
    "/v1/models": {"get": _operation("The models that are served.", {JSON: "Models"})},
    "/v1/models/{model}": {
        "get": _operation("One model.", {JSON: "Model"}, parameters=[_in_path("model")])
    },
    "/v1/packages": {
        "get": _operation("The packages, and what is loaded of them.", {JSON: "Packages"})
    },
    "/v1/packages/load": {
        "post": _operation("Load a package.", {JSON: "Package"}, body="LoadPackage")
    },
    "/v1/packages/unload": {
        "post": _operation(
            "Free a package when its answers have ended.", {JSON: "Package"}, body="UnloadPackage"
        )
    },
    "/v1/packages/switch": {
        "post": _operation(
            "Load a package, make it the default, and free the one before.",
            {JSON: "Package"},
            body="SwitchPackage",
        )
    },
    "/v1/ngram_store": {
        "delete": _operation(
            "Delete what is kept of whoever asks.",
            {JSON: "Deleted"},
            parameters=[_in_query("user", STRING, "Of this user of the key.")],
        )
    },
    "/v1/responses": {
        "get": _operation("The WebSocket: an upgrade, or refused.", {}, status="101"),
        "post": _operation(
            "Begin a response.", {JSON: "Response", EVENTS: "StreamEvent"}, body="CreateResponse"
        ),
    },
    "/v1/responses/compact": {
        "post": _operation(
            "Have a conversation summed up.", {JSON: "Compaction"}, body="CompactConversation"
        )
    },
    "/v1/responses/{response_id}": {
        "get": _operation(
            "A response as it is, or its events.",
            {JSON: "Response", EVENTS: "StreamEvent"},
            parameters=[RESPONSE_ID, STREAM, AFTER],
        ),
        "delete": _operation("Forget a response.", {JSON: "Deleted"}, parameters=[RESPONSE_ID]),
    },
    "/v1/responses/{response_id}/cancel": {
        "post": _operation("End a response.", {JSON: "Response"}, parameters=[RESPONSE_ID])
    },
    "/v1/chat/completions": {
        "post": _operation(
            "Answer a chat.",
            {JSON: "ChatCompletion", EVENTS: "StreamEvent"},
            body="CreateChatCompletion",
        )
    },
    "/v1/completions": {
        "post": _operation(
            "Continue texts.", {JSON: "Completion", EVENTS: "StreamEvent"}, body="CreateCompletion"
        )
    },
}
