"""Schemas of what clients get."""

from __future__ import annotations

from gateway.http.openapi.shapes import (
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    Schema,
    array,
    either,
    exactly,
    integer,
    nullable,
    number,
    objects_of,
    one_of,
    ref,
)

DRAFTED = {"draft_n": COUNT, "draft_n_accepted": COUNT, "rounds": COUNT}
TIMINGS = exactly(
    {
        **DRAFTED,
        "tau": nullable(number(0)),
        "alpha": nullable(number(0, 1)),
        "queue_ms": number(0),
        "prefill_ms": number(0),
        "ttft_ms": nullable(number(0)),
        "tpot_ms": nullable(number(0)),
        "draft_ms": number(0),
        "verify_ms": number(0),
        "accept_ms": number(0),
        "drafter": STRING,
        "policy": STRING,
        "rule": STRING,
        "lossless": BOOLEAN,
        "exact": BOOLEAN,
        "by_drafter": objects_of(exactly(DRAFTED)),
        "depths": array(array(COUNT, minItems=2, maxItems=2)),
    }
)
RESPONSE = exactly(
    {
        "id": STRING,
        "object": one_of("response"),
        "created_at": INTEGER,
        "completed_at": nullable(INTEGER),
        "status": one_of("in_progress", "completed", "incomplete", "failed", "cancelled"),
        "incomplete_details": nullable(exactly({"reason": STRING})),
        "model": STRING,
        "previous_response_id": nullable(STRING),
        "instructions": nullable(STRING),
        "output": array(OBJECT),
        "error": nullable(exactly({"code": STRING, "message": STRING})),
        "tools": array(OBJECT),
        "truncation": STRING,
        "text": OBJECT,
        "reasoning": OBJECT,
        "usage": nullable(ref("ResponseUsage")),
        "timings": nullable(ref("Timings")),
        "stop_reason": nullable(either(STRING, INTEGER)),
        "max_output_tokens": nullable(INTEGER),
        "store": BOOLEAN,
        "background": BOOLEAN,
        "service_tier": STRING,
        "temperature": NUMBER,
        "top_p": NUMBER,
        "presence_penalty": NUMBER,
        "frequency_penalty": NUMBER,
        "top_logprobs": INTEGER,
        "seed": nullable(INTEGER),
        "parallel_tool_calls": BOOLEAN,
        "max_tool_calls": nullable(INTEGER),
        "metadata": objects_of(STRING),
        "safety_identifier": nullable(STRING),
        "prompt_cache_key": nullable(STRING),
    }
)
RESPONSE_USAGE = exactly(
    {
        "input_tokens": COUNT,
        "input_tokens_details": exactly({"cached_tokens": COUNT, "cache_write_tokens": INTEGER}),
        "output_tokens": COUNT,
        "output_tokens_details": exactly({"reasoning_tokens": COUNT}),
        "total_tokens": COUNT,
    }
)
USAGE = exactly(
    {
        "prompt_tokens": COUNT,
        "prompt_tokens_details": exactly({"cached_tokens": COUNT}),
        "completion_tokens": COUNT,
        "completion_tokens_details": exactly(
            {
                "reasoning_tokens": COUNT,
                "accepted_prediction_tokens": COUNT,
                "rejected_prediction_tokens": COUNT,
            }
        ),
        "total_tokens": COUNT,
    }
)
CHOICE: dict[str, Schema] = {
    "index": COUNT,
    "finish_reason": STRING,
    "logprobs": nullable(OBJECT),
    "stop_reason": nullable(either(STRING, INTEGER)),
    "seed": nullable(INTEGER),
    "timings": ref("Timings"),
}
STATE = one_of("unloaded", "loading", "loaded", "draining", "reloading", "failed", "stuck")
MODEL = exactly(
    {
        "id": STRING,
        "object": one_of("model"),
        "created": INTEGER,
        "owned_by": STRING,
        "context_length": integer(1),
        "drafters": array(STRING),
        "state": STATE,
    }
)
PACKAGE = exactly(
    {
        "id": STRING,
        "object": one_of("package"),
        "state": STATE,
        "default": BOOLEAN,
        "needs_bytes": COUNT,
        "memory_bytes": COUNT,
        "requests": COUNT,
        "waiting": COUNT,
        "idle_seconds": nullable(number(0)),
        "keep_alive": NUMBER,
        "loads": COUNT,
        "failures": COUNT,
        "problem": nullable(STRING),
    }
)
STATUS = exactly(
    {
        "model": STRING,
        "device": STRING,
        "exact": BOOLEAN,
        "differences": array(STRING),
        "slots": COUNT,
        "free_slots": COUNT,
        "kv_tokens": COUNT,
        "running": COUNT,
        "waiting": COUNT,
        "memory_bytes": COUNT,
        "run_ms": objects_of(NUMBER),
        "costs": OBJECT,
        "drafter": STRING,
        "drafters": array(OBJECT),
        "state": STATE,
        "packages": array(ref("Package")),
        "graphs": nullable(OBJECT),
        "policy": STRING,
        "context_length": integer(1),
        "requests": array(OBJECT),
    }
)
ERROR = exactly(
    {
        "error": exactly(
            {
                "type": STRING,
                "code": nullable(STRING),
                "message": STRING,
                "param": nullable(STRING),
            }
        )
    }
)


def _completion(kind: str, said: dict[str, Schema]) -> Schema:
    return exactly(
        {
            "id": STRING,
            "object": one_of(kind),
            "created": INTEGER,
            "model": STRING,
            "system_fingerprint": STRING,
            "choices": array(exactly({**CHOICE, **said}), minItems=1),
            "usage": ref("Usage"),
        }
    )


ANSWERS: dict[str, Schema] = {
    "Timings": TIMINGS,
    "Response": RESPONSE,
    "Compaction": exactly(
        {
            "id": STRING,
            "object": one_of("response.compaction"),
            "created_at": INTEGER,
            "output": array(OBJECT, minItems=1),
            "usage": ref("ResponseUsage"),
        }
    ),
    "ResponseUsage": RESPONSE_USAGE,
    "Usage": USAGE,
    "ChatCompletion": _completion(
        "chat.completion",
        {
            "message": exactly(
                {
                    "role": STRING,
                    "content": nullable(STRING),
                    "refusal": nullable(STRING),
                    "tool_calls": array(OBJECT, minItems=1),
                    "reasoning_content": STRING,
                },
                without=("tool_calls", "reasoning_content"),
            )
        },
    ),
    "Completion": _completion("text_completion", {"text": STRING}),
    "Model": MODEL,
    "Models": exactly({"object": one_of("list"), "data": array(ref("Model"))}),
    "Status": STATUS,
    "Package": PACKAGE,
    "Packages": exactly({"object": one_of("list"), "data": array(ref("Package"))}),
    "State": exactly({"status": STRING}),
    "Deleted": exactly({"object": STRING, "deleted": BOOLEAN}),
    "StreamEvent": exactly({"event": STRING, "data": STRING}, without=("event",)),
    "Error": ERROR,
}
