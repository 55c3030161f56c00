"""Functions that a model may call, and its calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """A function. `parameters` is the JSON schema of its arguments, an object; errors about it name
    the request's field `param`."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]
    param: str = field(default="tools", compare=False)

    def described(self) -> dict[str, Any]:
        """As chat templates want it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": {**function, "parameters": self.parameters}}


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was made: `arguments` are JSON, if the model wrote them right."""

    id: str
    name: str
    arguments: str

    def described(self) -> dict[str, Any]:
        """As chat templates want it: they write arguments that are an object in their own way."""
        try:
            arguments = json.loads(self.arguments)
        except ValueError:
            arguments = self.arguments
        function = {"name": self.name, "arguments": arguments}
        return {"type": "function", "id": self.id, "function": function}


def spelled(value: Any, spell: Callable[[str], str]) -> Any:
    """`value` with every text in it, those of keys too, as `spell` writes it."""
    if isinstance(value, str):
        return spell(value)
    if isinstance(value, Mapping):
        return {spell(key): spelled(item, spell) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(item, spell) for item in value]
    return value
