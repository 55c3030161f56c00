"""openai-agents over each of its three ways, for the matrix.

matrix_agents.py BASE MODEL KEY FULL.
"""

from __future__ import annotations

import sys
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.models.openai_responses import OpenAIResponsesWSModel
from matrix import DESCRIPTION, SLOWLY, TOKENS, TOP, WET, Weather, cells_of, failure, freed, run
from openai import AsyncOpenAI

WAYS = {"R": OpenAIResponsesModel, "C": OpenAIChatCompletionsModel, "W": OpenAIResponsesWSModel}


@function_tool(name_override="get_weather", description_override=DESCRIPTION)
def get_weather(weather: Weather) -> str:
    return f"{WET} {weather.town}"


# An answer that the limit cuts is a failure to it over Responses: these end by themselves.
FORM = {"type": "regex", "regex": "[a-z]{12}"}
ENDING: dict[str, dict[str, Any]] = {
    "R": {"text": {"format": FORM}},
    "C": {"response_format": FORM},
    "W": {"text": {"format": FORM}},
}


class Client:
    def __init__(self, base: str, model: str, key: str, full: str) -> None:
        self.base, self.model, self.key, self.full = base, model, key, full
        self.client = AsyncOpenAI(base_url=base, api_key=key, max_retries=0)
        self.stranger = AsyncOpenAI(base_url=base, api_key="wrong", max_retries=0)

    def agent(self, way: str, *, model: str | None = None, key: bool = True, **more: Any) -> Agent:
        tokens = more.pop("tokens", TOKENS)
        settings = {name: more.pop(name) for name in list(more) if name in SETTINGS}
        return Agent(
            name="Tester",
            model=WAYS[way](model or self.model, self.client if key else self.stranger),
            model_settings=ModelSettings(max_tokens=tokens, **settings),
            **more,
        )

    async def each(self, feature: Any) -> dict[str, Any]:
        return {way: await feature(way) for way in WAYS}

    async def text(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            agent = self.agent(way, extra_body=ENDING[way])
            whole = await Runner.run(agent, f"text {way}")
            streamed = Runner.run_streamed(agent, f"text {way}")
            deltas = await raw(streamed, "response.output_text.delta")
            return {"whole": whole.final_output, "deltas": deltas}

        return await self.each(of)

    async def turns(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            agent = self.agent(way, extra_body=ENDING[way])
            first = await Runner.run(agent, f"turns {way}")
            said = [*first.to_input_list(), {"role": "user", "content": "And?"}]
            second = await Runner.run(agent, said)
            told = [first.final_output, second.final_output]
            if way != "C":
                last = first.last_response_id
                again = await Runner.run(agent, "And?", previous_response_id=last)
                told.append(again.final_output)
            return {"said": told}

        return await self.each(of)

    async def tools(self) -> dict[str, Any]:
        """Its runner calls the function and asks again, with `auto` then."""

        async def of(way: str) -> dict[str, Any]:
            agent = self.agent(
                way,
                tools=[get_weather],
                tool_choice="required",
                parallel_tool_calls=False,
                tokens=200,
            )
            streamed = Runner.run_streamed(agent, f"tools {way}")
            deltas = await raw(streamed, "response.function_call_arguments.delta")
            calls = [item for item in streamed.new_items if item.type == "tool_call_item"]
            return {
                "name": calls[0].raw_item.name,
                "arguments": calls[0].raw_item.arguments,
                "inside": "weather",
                "deltas": deltas,
                "answer": streamed.final_output,
            }

        return await self.each(of)

    async def schema(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            agent = self.agent(way, output_type=Weather, tokens=200)
            found = await Runner.run(agent, f"schema {way}")
            return {"parsed": found.final_output_as(Weather).model_dump()}

        return await self.each(of)

    async def logprobs(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            agent = self.agent(way, top_logprobs=TOP, extra_body=ENDING[way])
            found = await Runner.run(agent, f"logprobs {way}")
            (message,) = found.raw_responses[0].output
            return {"logprobs": [entry.logprob for entry in message.content[0].logprobs]}

        return await self.each(of)

    async def stop(self) -> dict[str, Any]:
        """It has no setting for it, and passes on what it is given beside its settings."""

        async def of(way: str) -> dict[str, Any]:
            body = ENDING[way]
            whole = (await Runner.run(self.agent(way, extra_body=body), f"stop {way}")).final_output
            agent = self.agent(way, extra_body={**body, "stop": [whole[4:7]]})
            cut = await Runner.run(agent, f"stop {way}")
            return {"whole": whole, "stop": whole[4:7], "said": cut.final_output}

        return await self.each(of)

    async def errors(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            agents = {
                "model": self.agent(way, model="gpt-4"),
                "value": self.agent(way, temperature=9),
                "key": self.agent(way, key=False),
            }
            found = {
                name: await failure(lambda agent=agent: Runner.run(agent, "Hi"))
                for name, agent in agents.items()
            }
            full = await failure(lambda: Runner.run(self.agent(way), self.full))
            return {**found, "full": full}

        return await self.each(of)

    async def cancel(self) -> dict[str, Any]:
        async def of(way: str) -> dict[str, Any]:
            streamed = Runner.run_streamed(self.agent(way, tokens=1500), f"{SLOWLY} {way}")
            seen = 0
            async for event in streamed.stream_events():
                seen += event.type == "raw_response_event"
                if seen == 8:
                    streamed.cancel()
            return {"closed": await freed(self.base, self.key)}

        return await self.each(of)


SETTINGS = frozenset(
    {"extra_body", "parallel_tool_calls", "temperature", "tool_choice", "top_logprobs"}
)


async def raw(streamed: Any, kind: str) -> list[str]:
    return [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and event.data.type == kind
    ]


if __name__ == "__main__":
    set_tracing_disabled(True)
    client = Client(*sys.argv[1:])
    # A runner goes on from one answer: it has no `n`.
    names = ("text", "turns", "tools", "schema", "logprobs", "stop", "errors", "cancel")
    run(cells_of({name: getattr(client, name) for name in names}))
