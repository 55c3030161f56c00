"""The response object: what was asked for, what was used, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gateway.engine.requests import GenerationRequest, Usage
from gateway.http.responses.schema import CreateResponse
from models.sampling.parameters import Sampling

EXTENSIONS = ("top_k", "min_p", "repetition_penalty", "min_tokens")
_NEUTRAL = Sampling()


def response_object(
    response_id: str, model: str, request: CreateResponse, opened: GenerationRequest
) -> dict[str, Any]:
    """As it is when the response begins; `opened` is what the engine made of `request`."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "model": model,
        "previous_response_id": request.previous_response_id,
        "instructions": request.instructions,
        "output": [],
        "error": None,
        "truncation": "disabled",
        "reasoning": {"effort": request.effort, "summary": None},
        "usage": None,
        "timings": None,
        "stop_reason": None,
        "max_output_tokens": request.max_output_tokens,
        "store": request.store,
        "background": request.background,
        "service_tier": "default",
        **_decoding(opened),
        **request.echo,
    }


def usage_object(usage: Usage, thought_tokens: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.prompt_tokens - usage.cached_tokens,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": thought_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _decoding(opened: GenerationRequest) -> dict[str, Any]:
    """What was used. Of the extensions the seed always, so that any answer can be drawn again;
    the others where they do something."""
    sampling = opened.sampling
    return {
        "temperature": float(sampling.temperature),
        "top_p": float(sampling.top_p),
        "presence_penalty": float(sampling.presence_penalty),
        "frequency_penalty": float(sampling.frequency_penalty),
        "top_logprobs": opened.top_logprobs or 0,
        "seed": sampling.seed,
        **_extensions(opened),
    }


def _extensions(opened: GenerationRequest) -> Mapping[str, Any]:
    sampling = opened.sampling
    used: dict[str, Any] = {
        name: getattr(sampling, name)
        for name in EXTENSIONS
        if getattr(sampling, name) != getattr(_NEUTRAL, name)
    }
    if sampling.logit_bias:
        used["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    if opened.stop:
        used["stop"] = list(opened.stop)
    if opened.stop_ids:
        used["stop_token_ids"] = list(opened.stop_ids)
    if opened.ignore_eos:
        used["ignore_eos"] = True
    return used
