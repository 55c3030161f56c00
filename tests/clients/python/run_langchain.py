"""langchain-openai on a gateway, over chat completions and over Responses. Prints JSON.

`run_langchain.py BASE MODEL KEY FULL`; a prompt of FULL is turned away.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

KINDS: dict[str, dict[str, Any]] = {"chat": {}, "responses": {"use_responses_api": True}}


async def main(base: str, model: str, key: str, full: str) -> dict[str, Any]:
    found = {}
    for name in KINDS:
        common = common_of(name, base, model, key)
        found[name] = await talk(ChatOpenAI(**common))
        found[name]["errors"] = {
            "model": failure(ChatOpenAI(**{**common, "model": "gpt-4"}), "Hi"),
            "temperature": failure(ChatOpenAI(**common, temperature=2.5), "Hi"),
            "full": failure(ChatOpenAI(**common), full),
            "key": failure(ChatOpenAI(**{**common, "api_key": "wrong"}), "Hi"),
        }
    found["chat"] |= only_chat(common_of("chat", base, model, key))
    return found


def common_of(name: str, base: str, model: str, key: str) -> dict[str, Any]:
    return {"base_url": base, "api_key": key, "model": model, "max_retries": 0, **KINDS[name]}


async def talk(model: ChatOpenAI) -> dict[str, Any]:
    first = model.invoke([SystemMessage("Be brief."), HumanMessage("Hi")])
    second = model.invoke([HumanMessage("Hi"), first, HumanMessage("And?")])
    chunks = list(model.stream([HumanMessage("Hi")]))
    later = await model.ainvoke("Hi")
    return {
        "text": str(first.text),
        "tokens": first.usage_metadata["output_tokens"],
        "second": str(second.text),
        "deltas": [text for chunk in chunks if (text := str(chunk.text))],
        "async": str(later.text),
    }


def only_chat(common: dict[str, Any]) -> dict[str, Any]:
    """Over Responses this client passes no stop on, and drops log-probabilities."""
    scored = ChatOpenAI(**common, logprobs=True, top_logprobs=2).invoke("Hi")
    told = scored.response_metadata["logprobs"]["content"]
    return {
        "logprobs": [entry["logprob"] for entry in told],
        "stopped": str(ChatOpenAI(**common).invoke("Hi", stop=[","]).text),
    }


def failure(model: ChatOpenAI, said: str) -> dict[str, Any]:
    try:
        model.invoke(said)
    except Exception as error:
        return {
            "classes": [kind.__name__ for kind in type(error).__mro__],
            "code": getattr(error, "code", None),
        }
    return {}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
