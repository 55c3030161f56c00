"""openai-agents on a gateway, over each of its three ways there. Prints what it got as JSON.

`run_agents.py BASE MODEL KEY FULL`; a prompt of FULL is turned away.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from agents.models.openai_responses import OpenAIResponsesWSModel
from openai import AsyncOpenAI

KINDS = {
    "responses": OpenAIResponsesModel,
    "chat": OpenAIChatCompletionsModel,
    "socket": OpenAIResponsesWSModel,
}


async def main(base: str, model: str, key: str, full: str) -> dict[str, Any]:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base, api_key=key, max_retries=0)
    stranger = AsyncOpenAI(base_url=base, api_key="wrong", max_retries=0)
    found = {}
    for name, kind in KINDS.items():
        agent = Agent(
            name="Tester",
            instructions="Be brief.",
            model=kind(model, client),
            model_settings=ModelSettings(temperature=0, max_tokens=900),
        )
        found[name] = await talk(agent, by_id=name != "chat")
        found[name]["errors"] = {
            "model": await failure(Agent(name="Tester", model=kind("gpt-4", client)), "Hi"),
            "full": await failure(agent, full),
            "key": await failure(Agent(name="Tester", model=kind(model, stranger)), "Hi"),
        }
    return found


async def talk(agent: Agent, by_id: bool) -> dict[str, Any]:
    first = await Runner.run(agent, "Hi")
    said = [*first.to_input_list(), {"role": "user", "content": "And?"}]
    second = await Runner.run(agent, said)
    third = None
    if by_id:
        continued = await Runner.run(agent, "More?", previous_response_id=second.last_response_id)
        third = continued.final_output
    streamed = Runner.run_streamed(agent, "Hi")
    deltas = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return {
        "text": first.final_output,
        "tokens": first.raw_responses[0].usage.output_tokens,
        "second": second.final_output,
        "third": third,
        "deltas": deltas,
        "streamed": streamed.final_output,
    }


async def failure(agent: Agent, said: str) -> dict[str, Any]:
    try:
        await Runner.run(agent, said)
    except Exception as error:
        return {
            "classes": [kind.__name__ for kind in type(error).__mro__],
            "code": getattr(error, "code", None),
        }
    return {}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
