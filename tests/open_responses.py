"""What the Open Responses specification (2026-04-24) wants of responses and events.

JSON Schemas of what a text model sends, written from the specification. Other fields may stand
beside these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
TRUTH: Schema = {"type": "boolean"}


def one_of(*names: str) -> Schema:
    return {"enum": list(names)}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def some(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def has(**fields: Schema) -> Schema:
    """An object with these fields; those of names that end in `_or_absent` may be missing."""
    properties = {name.removesuffix("_or_absent"): schema for name, schema in fields.items()}
    required = [name for name in fields if not name.endswith("_or_absent")]
    return {"type": "object", "properties": properties, "required": required}


TOP_LOGPROB = has(token=TEXT, logprob=NUMBER, bytes=some(WHOLE))
LOGPROB = has(token=TEXT, logprob=NUMBER, bytes=some(WHOLE), top_logprobs=some(TOP_LOGPROB))
OUTPUT_TEXT = has(
    type=one_of("output_text"),
    text=TEXT,
    annotations=some({"type": "object"}),
    logprobs_or_absent=some(LOGPROB),
)
STATUS = one_of("in_progress", "completed", "incomplete")
MESSAGE = has(
    type=one_of("message"),
    id=TEXT,
    status=STATUS,
    role=one_of("user", "assistant", "system", "developer"),
    content=some(OUTPUT_TEXT),
    phase_or_absent=one_of("commentary", "final_answer"),
)
FUNCTION_CALL = has(
    type=one_of("function_call"),
    id=TEXT,
    call_id=TEXT,
    name=TEXT,
    arguments=TEXT,
    status=STATUS,
)
REASONING = has(type=one_of("reasoning"), id=TEXT, summary=some({"type": "object"}))
COMPACTION = has(type=one_of("compaction"), id=TEXT, encrypted_content=TEXT)
ITEM = either(MESSAGE, FUNCTION_CALL, REASONING, COMPACTION)
USAGE = has(
    input_tokens=WHOLE,
    output_tokens=WHOLE,
    total_tokens=WHOLE,
    input_tokens_details=has(cached_tokens=WHOLE),
    output_tokens_details=has(reasoning_tokens=WHOLE),
)
TOOL = has(
    type=one_of("function"),
    name=TEXT,
    description=nullable(TEXT),
    parameters=nullable({"type": "object"}),
    strict=nullable(TRUTH),
)
EFFORT = one_of("none", "minimal", "low", "medium", "high", "xhigh")
RESPONSE = has(
    id=TEXT,
    object=one_of("response"),
    created_at=WHOLE,
    completed_at=nullable(WHOLE),
    status=TEXT,
    incomplete_details=nullable(has(reason=TEXT)),
    model=TEXT,
    previous_response_id=nullable(TEXT),
    instructions=nullable(TEXT),
    output=some(ITEM),
    error=nullable(has(code=TEXT, message=TEXT)),
    tools=some(TOOL),
    tool_choice=either(one_of("none", "auto", "required"), has(type=TEXT)),
    truncation=one_of("auto", "disabled"),
    parallel_tool_calls=TRUTH,
    text=has(
        format=has(type=one_of("text", "json_object", "json_schema")),
        verbosity_or_absent=one_of("low", "medium", "high"),
    ),
    top_p=NUMBER,
    presence_penalty=NUMBER,
    frequency_penalty=NUMBER,
    top_logprobs=WHOLE,
    temperature=NUMBER,
    reasoning=nullable(
        has(effort=nullable(EFFORT), summary=nullable(one_of("concise", "detailed", "auto")))
    ),
    usage=nullable(USAGE),
    max_output_tokens=nullable(WHOLE),
    max_tool_calls=nullable(WHOLE),
    store=TRUTH,
    background=TRUTH,
    service_tier=TEXT,
    metadata={"type": "object"},
    safety_identifier=nullable(TEXT),
    prompt_cache_key=nullable(TEXT),
)
COMPACTED = has(
    id=TEXT,
    object=one_of("response.compaction"),
    created_at=WHOLE,
    output=some(ITEM),
    usage=USAGE,
)
_ITEM_EVENT = {"output_index": WHOLE, "item": nullable(ITEM)}
_PLACE = {"item_id": TEXT, "output_index": WHOLE, "content_index": WHOLE}
_CALL = {"item_id": TEXT, "output_index": WHOLE}
EVENTS: Mapping[str, Schema] = {
    **{
        f"response.{name}": has(sequence_number=WHOLE, response=RESPONSE)
        for name in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
    },
    "response.output_item.added": has(sequence_number=WHOLE, **_ITEM_EVENT),
    "response.output_item.done": has(sequence_number=WHOLE, **_ITEM_EVENT),
    "response.content_part.added": has(sequence_number=WHOLE, **_PLACE, part=OUTPUT_TEXT),
    "response.content_part.done": has(sequence_number=WHOLE, **_PLACE, part=OUTPUT_TEXT),
    "response.output_text.delta": has(
        sequence_number=WHOLE, **_PLACE, delta=TEXT, logprobs_or_absent=some(LOGPROB)
    ),
    "response.output_text.done": has(
        sequence_number=WHOLE, **_PLACE, text=TEXT, logprobs_or_absent=some(LOGPROB)
    ),
    "response.function_call_arguments.delta": has(sequence_number=WHOLE, **_CALL, delta=TEXT),
    "response.function_call_arguments.done": has(sequence_number=WHOLE, **_CALL, arguments=TEXT),
}
SOCKET_ERROR = has(
    type=one_of("error"),
    status=WHOLE,
    error=has(type_or_absent=TEXT, code=TEXT, message=TEXT, param_or_absent=nullable(TEXT)),
)


def check_response(document: Any) -> None:
    jsonschema.validate(document, RESPONSE)


def check_compacted(document: Any) -> None:
    jsonschema.validate(document, COMPACTED)


def check_event(document: Any) -> None:
    """Of a stream over HTTP, or of a socket, where an error is an event too."""
    if document["type"] == "error":
        jsonschema.validate(document, SOCKET_ERROR)
        return
    assert document["type"] in EVENTS, f"no event of the specification: {document['type']}"
    jsonschema.validate(document, EVENTS[document["type"]])
