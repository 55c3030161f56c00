"""Schemas of what clients send. Unknown fields are tolerated everywhere but in `speculation`."""

from __future__ import annotations

from gateway.engine.requests import (
    LEAST_TPOT_MS,
    MOST_BRANCHES,
    MOST_TOP_LOGPROBS,
    MOST_TPOT_MS,
    POLICY_NAMES,
)
from gateway.http.completions.schema import MOST_CHOICES, MOST_TEXT_LOGPROBS
from gateway.http.fields import MOST_ITEMS
from gateway.http.openapi.forms import CHAT_FORMS, CHAT_MESSAGE, INPUT_ITEM, RESPONSE_FORMS
from gateway.http.openapi.shapes import (
    BOOLEAN,
    NUMBER,
    STRING,
    Schema,
    array,
    either,
    integer,
    number,
    objects_of,
    one_of,
    optional,
    ref,
    text,
)
from gateway.http.prediction import KIND, MOST_CHARACTERS
from gateway.http.responses.limits import IDLE_INCLUDES
from gateway.http.responses.schema import LOGPROBS, PROVENANCE
from gateway.http.sampling import LARGEST_ID, MOST_STOP_CHARACTERS, MOST_STOP_IDS, MOST_STOPS
from gateway.http.speculation import PACINGS, RULES
from gateway.settings import MAX_DRAFT_LENGTH
from models.sampling.parameters import LEAST_SEED, MOST_BIASED, MOST_SEED

STOP = text(minLength=1, maxLength=MOST_STOP_CHARACTERS)
TOKEN_ID = integer(0, LARGEST_ID)
SAMPLING: dict[str, Schema] = {
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "top_k": integer(0),
    "min_p": number(0, 1),
    "presence_penalty": number(-2, 2),
    "frequency_penalty": number(-2, 2),
    "repetition_penalty": number(0.01, 10),
    "logit_bias": {
        **objects_of(number(-100, 100)),
        "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
        "maxProperties": MOST_BIASED,
    },
    "min_tokens": integer(0),
    "seed": integer(LEAST_SEED, MOST_SEED),
}
SHARED: dict[str, Schema] = {
    **SAMPLING,
    "stop": either(STOP, array(STOP, maxItems=MOST_STOPS)),
    "stop_token_ids": array(TOKEN_ID, maxItems=MOST_STOP_IDS),
    "ignore_eos": BOOLEAN,
    "speculation": ref("Speculation"),
    "prediction": ref("Prediction"),
    "user": STRING,
    "safety_identifier": STRING,
    "stream": BOOLEAN,
    "model": STRING,
}
SPECULATION: Schema = {
    "type": "object",
    "description": "How this request speculates; what is absent comes from the settings.",
    "properties": optional(
        {
            "policy": one_of(*POLICY_NAMES),
            "length": integer(1, MAX_DRAFT_LENGTH),
            "drafter": STRING,
            "branches": integer(1, MOST_BRANCHES),
            "rule": one_of(*RULES),
            "tpot_ms": number(LEAST_TPOT_MS, MOST_TPOT_MS),
            "pacing": one_of(*PACINGS),
            "off": BOOLEAN,
            "acceptance": number(0, 1),
            "epsilon": number(0, 1),
            "delta": number(0, 1),
        }
    ),
    "additionalProperties": False,
}
PREDICTED = text(maxLength=MOST_CHARACTERS)
PREDICTION: Schema = {
    "type": "object",
    "description": "What the answer is expected to be; drafted from, so it decides only the time.",
    "required": ["type", "content"],
    "properties": {
        "type": one_of(KIND),
        "content": either(
            PREDICTED,
            array(
                {
                    "type": "object",
                    "required": ["type", "text"],
                    "properties": {"type": one_of("text"), "text": PREDICTED},
                },
                maxItems=MOST_ITEMS,
            ),
        ),
    },
}
CREATE_RESPONSE: Schema = {
    "type": "object",
    "required": ["input"],
    "properties": {
        "input": either(STRING, array(ref("InputItem"), minItems=1)),
        **optional(
            {
                **SHARED,
                **RESPONSE_FORMS,
                "instructions": STRING,
                "previous_response_id": STRING,
                "max_output_tokens": integer(1),
                "store": BOOLEAN,
                "background": BOOLEAN,
                "generate": BOOLEAN,
                "top_logprobs": integer(0, MOST_TOP_LOGPROBS),
                "include": array(one_of(LOGPROBS, PROVENANCE, *sorted(IDLE_INCLUDES))),
                "metadata": {
                    **objects_of(text(maxLength=512)),
                    "propertyNames": {"maxLength": 64},
                    "maxProperties": 16,
                },
                "prompt_cache_key": STRING,
            }
        ),
    },
}
COMPACT: Schema = {
    "type": "object",
    "required": ["model"],
    "properties": {
        "model": STRING,
        **optional(
            {
                "input": either(STRING, array(ref("InputItem"))),
                "instructions": STRING,
                "previous_response_id": STRING,
                "prompt_cache_key": STRING,
            }
        ),
    },
}
CHAT: Schema = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "messages": array(ref("ChatMessage"), minItems=1),
        **optional(
            {
                **SHARED,
                **CHAT_FORMS,
                "max_tokens": integer(1),
                "max_completion_tokens": integer(1),
                "n": integer(1, MOST_CHOICES),
                "logprobs": BOOLEAN,
                "top_logprobs": integer(0, MOST_TOP_LOGPROBS),
                "stream_options": ref("StreamOptions"),
            }
        ),
    },
}
COMPLETION: Schema = {
    "type": "object",
    "required": ["prompt"],
    "properties": {
        "prompt": either(
            text(minLength=1),
            array(TOKEN_ID, minItems=1),
            array(either(text(minLength=1), array(TOKEN_ID, minItems=1)), minItems=1),
        ),
        **optional(
            {
                **SHARED,
                "max_tokens": integer(0),
                "n": integer(1, MOST_CHOICES),
                "logprobs": integer(0, MOST_TEXT_LOGPROBS),
                "echo": BOOLEAN,
                "stream_options": ref("StreamOptions"),
            }
        ),
    },
}


UNLOAD: Schema = {"type": "object", "properties": {"model": STRING}, "required": ["model"]}
SWITCH: Schema = {**UNLOAD, "properties": {"model": STRING, **optional({"force": BOOLEAN})}}
LOAD: Schema = {
    **UNLOAD,
    "properties": {"model": STRING, **optional({"force": BOOLEAN, "keep_alive": NUMBER})},
}

REQUESTS: dict[str, Schema] = {
    "LoadPackage": LOAD,
    "UnloadPackage": UNLOAD,
    "SwitchPackage": SWITCH,
    "CreateResponse": CREATE_RESPONSE,
    "CompactConversation": COMPACT,
    "CreateChatCompletion": CHAT,
    "CreateCompletion": COMPLETION,
    "Speculation": SPECULATION,
    "Prediction": PREDICTION,
    "StreamOptions": {"type": "object", "properties": optional({"include_usage": BOOLEAN})},
    "InputItem": INPUT_ITEM,
    "ChatMessage": CHAT_MESSAGE,
}
