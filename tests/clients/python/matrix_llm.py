"""`llm`, as a library and as the program it is, for the matrix.

matrix_llm.py BASE MODEL KEY FULL. Its home is the directory it runs in. Turns and what is left are
of the program in a process of its own, schemas, stops and errors of its command line in this one:
a process takes a second and more until it has read its packages.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HOME = Path.cwd()
os.environ["LLM_USER_PATH"] = str(HOME)

import llm  # noqa: E402 (it looks for its home when it is imported)
from click.testing import CliRunner, Result  # noqa: E402
from llm.cli import cli  # noqa: E402
from matrix import SLOWLY, TOKENS, TOP, WEATHER, WET, cells_of, freed, run  # noqa: E402

LIMITED = ("-o", "max_tokens", str(TOKENS))
WAYS: dict[str, dict[str, Any]] = {
    "C": {},
    "R": {"responses": True},
    "T": {"completion": True},
}


class Client:
    def __init__(self, base: str, model: str, key: str, full: str) -> None:
        self.base, self.model, self.key, self.full = base, model, key, full
        (HOME / "keys.json").write_text(json.dumps({"right": key, "wrong": "wrong"}))
        models = [
            entry(f"{kind}{way}", name, base, secret, **more)
            for way, more in WAYS.items()
            for kind, name, secret in (
                ("here", model, "right"),
                ("elsewhere", "gpt-4", "right"),
                ("locked", model, "wrong"),
            )
        ]
        # JSON is YAML.
        (HOME / "extra-openai-models.yaml").write_text(json.dumps(models))

    def text(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            model = llm.get_model(f"here{way}")
            whole = model.prompt(f"text {way}", stream=False, max_tokens=TOKENS).text()
            return {"whole": whole, "deltas": list(model.prompt(f"text {way}", max_tokens=TOKENS))}

        return {way: of(way) for way in WAYS}

    def turns(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            first = said_by_program("-m", f"here{way}", *LIMITED, f"turns {way}")
            second = said_by_program("-m", f"here{way}", "-c", *LIMITED, "And?")
            return {"said": [first, second]}

        # A completion model is given what was said, with newlines between.
        return {way: of(way) for way in ("C", "R")}

    def tools(self) -> dict[str, Any]:
        """It cannot say that a function must be called: the test sees to that."""

        def of(way: str) -> dict[str, Any]:
            made: list[dict[str, Any]] = []

            def get_weather(town: str, days: int) -> str:
                made.append({"town": town, "days": days})
                return WET

            tool = llm.Tool(
                name="get_weather",
                description="The weather in a town.",
                input_schema=WEATHER,
                implementation=get_weather,
            )
            chain = llm.get_model(f"here{way}").chain(
                f"tools {way}", tools=[tool], options={"max_tokens": 200}
            )
            first, second = list(chain.responses())
            deltas = [
                event.chunk for event in first.stream_events() if event.type == "tool_call_args"
            ]
            return {
                "name": first.tool_calls()[0].name,
                "arguments": json.dumps(made[0]),
                "deltas": deltas,
                "answer": second.text(),
            }

        return {way: of(way) for way in ("C", "R")}

    def schema(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            written = said("-m", f"here{way}", "--schema", json.dumps(WEATHER), f"schema {way}")
            return {"parsed": json.loads(written)}

        return {way: of(way) for way in ("C", "R")}

    def logprobs(self) -> dict[str, Any]:
        """Of completion models alone; they are kept with the response, not shown."""
        model = llm.get_model("hereT")
        response = model.prompt("logprobs T", logprobs=TOP, max_tokens=TOKENS)
        response.text()
        told = response.response_json["logprobs"]
        tops = [top for each in told for top in each["top_logprobs"]]
        # The likeliest tokens are those that were said: nothing is drawn.
        return {"T": {"logprobs": [max(top.values()) for top in tops]}}

    def stop(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            whole = said("-m", f"here{way}", *LIMITED, f"stop {way}")
            cut = said("-m", f"here{way}", *LIMITED, "-o", "stop", whole[4:7], f"stop {way}")
            return {"whole": whole, "stop": whole[4:7], "said": cut}

        return {way: of(way) for way in ("C", "T")}

    def errors(self) -> dict[str, Any]:
        def of(way: str) -> dict[str, Any]:
            return {
                "model": refused("-m", f"elsewhere{way}", "Hi"),
                "full": refused("-m", f"here{way}", self.full),
                "key": refused("-m", f"locked{way}", "Hi"),
            }

        return {way: of(way) for way in WAYS}

    async def cancel(self) -> dict[str, Any]:
        """Ctrl-C, when the first words are there."""

        async def of(way: str) -> dict[str, Any]:
            process = await asyncio.create_subprocess_exec(
                *command("-m", f"here{way}", f"{SLOWLY} {way}"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            assert process.stdout is not None
            await process.stdout.read(1)
            process.send_signal(signal.SIGINT)
            closed = await freed(self.base, self.key)
            await process.communicate()
            return {"closed": closed}

        return {way: await of(way) for way in WAYS}


def entry(name: str, model: str, base: str, key: str, **more: Any) -> dict[str, Any]:
    able = {} if more.get("completion") else {"supports_schema": True, "supports_tools": True}
    return {
        "model_id": name,
        "model_name": model,
        "api_base": base,
        "api_key_name": key,
        **able,
        **more,
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "llm", *arguments]


def said_by_program(*arguments: str) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().removesuffix("\n")


def entered(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def said(*arguments: str) -> str:
    done = entered(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.removesuffix("\n")


def refused(*arguments: str) -> dict[str, Any]:
    done = entered(*arguments)
    kinds = [] if done.exit_code == 0 else ["Error"]
    return {"kinds": kinds, "code": None, "message": done.stderr}


if __name__ == "__main__":
    client = Client(*sys.argv[1:])
    # One answer to a prompt: it has no `n`.
    names = ("text", "turns", "tools", "schema", "logprobs", "stop", "errors", "cancel")
    run(cells_of({name: getattr(client, name) for name in names}))
