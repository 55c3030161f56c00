"""Telling a model of functions where its chat template does not: in words, in Hermes' form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from gateway.calls.tools import Call, Tool

_BEGIN = """You may call functions. Each is described by a JSON object:
<tools>
"""
_END = """
</tools>
To call one, answer with its name and arguments between these marks, and nothing behind them:
<tool_call>
{"name": "the function's name", "arguments": {"an argument": "its value"}}
</tool_call>
Its result then comes between <tool_response> and </tool_response>."""


def introduction(tools: Iterable[Tool]) -> str:
    """What the system message says."""
    described = (json.dumps(tool.described(), ensure_ascii=False) for tool in tools)
    return _BEGIN + "\n".join(described) + _END


def written(content: str, calls: Sequence[Call]) -> str:
    """What an assistant said, with its calls as it wrote them."""
    parts = [content] if content else []
    parts += (f"<tool_call>\n{_object(call)}\n</tool_call>" for call in calls)
    return "\n".join(parts)


def response(content: str) -> str:
    """A call's result, as a user would say it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def _object(call: Call) -> str:
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {call.arguments}}}'
