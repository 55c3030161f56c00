"""What a JSON schema is made of: where a keyword stands in it, and whether it ever ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_VALUES = ("enum", "const", "default", "examples", "required", "x-guidance")
_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})


def place_of(schema: Any, keyword: str) -> str | None:
    """Where the first object within `schema` that has `keyword` stands, its keys with dots between
    them; None where there is none. Names of properties are no keywords."""
    waiting = deque([("", schema, True)])
    while waiting:
        path, value, is_schema = waiting.popleft()
        if isinstance(value, Mapping):
            if is_schema and keyword in value:
                return path
            for key, inner in value.items():
                if not (is_schema and key in _VALUES):
                    of_schemas = not (is_schema and key in _MAPS)
                    waiting.append((f"{path}.{key}".lstrip("."), inner, of_schemas))
        elif isinstance(value, list):
            waiting.extend((f"{path}[{n}]", inner, True) for n, inner in enumerate(value))
    return None


def never_ends(schema: Any) -> bool:
    """Whether every value that fits would hold another one within itself, without an end.

    Says so only where that is certain: what it does not understand may end. Takes time and memory
    by the size of the schema, however it refers to itself.
    """
    if not isinstance(schema, Mapping):
        return False
    return not _Values(schema).finite


class _Values:
    """Which schemas have finite values: each is a node that needs some of its children to have
    them, all or one. Those that can be reached from the leaves are finite."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._needed: list[int] = []
        self._above: list[list[int]] = []
        self._nodes: dict[int, int] = {}
        self._unread: list[tuple[int, Mapping[str, Any]]] = []
        top = self._node(root)
        while self._unread:
            node, schema = self._unread.pop()
            self._all(node, list(self._parts(schema)))
        self.finite = top in self._reached()

    def _node(self, schema: Any) -> int:
        """That of a schema; of what is none, one that needs nothing."""
        known = self._nodes.get(id(schema))
        if known is not None:
            return known
        node = self._new()
        if isinstance(schema, Mapping):
            self._nodes[id(schema)] = node
            self._unread.append((node, schema))
        return node

    def _new(self) -> int:
        self._needed.append(0)
        self._above.append([])
        return len(self._needed) - 1

    def _all(self, node: int, children: list[int]) -> int:
        self._needed[node] = len(children)
        for child in children:
            self._above[child].append(node)
        return node

    def _one(self, children: list[int]) -> int:
        node = self._all(self._new(), children)
        self._needed[node] = min(1, len(children))
        return node

    def _parts(self, schema: Mapping[str, Any]) -> Iterator[int]:
        """What a value of `schema` needs, all of it."""
        if "$ref" in schema:
            yield self._node(self._target(schema["$ref"]))
        for key in ("anyOf", "oneOf"):
            cases = schema.get(key)
            if isinstance(cases, list) and cases:
                yield self._one([self._node(case) for case in cases])
        cases = schema.get("allOf")
        if isinstance(cases, list):
            yield from (self._node(case) for case in cases)
        if "const" in schema or "enum" in schema:
            return
        types = schema.get("type")
        names = {types} if isinstance(types, str) else _SCALARS
        if isinstance(types, list):
            names = set(map(str, types))
        if names and names <= {"object", "array"}:
            kinds = {"object": self._object, "array": self._array}
            yield self._one([self._all(self._new(), kinds[name](schema)) for name in names])

    def _object(self, schema: Mapping[str, Any]) -> list[int]:
        names, properties = schema.get("required"), schema.get("properties")
        if not isinstance(names, list):
            return []
        known = properties if isinstance(properties, Mapping) else {}
        other = None if "patternProperties" in schema else schema.get("additionalProperties")
        return [self._node(known.get(name, other)) for name in dict.fromkeys(map(str, names))]

    def _array(self, schema: Mapping[str, Any]) -> list[int]:
        least, items = schema.get("minItems"), schema.get("items")
        if not isinstance(least, int) or least < 1:
            return []
        first = schema.get("prefixItems", items if isinstance(items, list) else None)
        first = first if isinstance(first, list) else []
        rest = items if least > len(first) and not isinstance(items, list) else None
        return [self._node(each) for each in (*first[:least], rest)]

    def _target(self, reference: Any) -> Any:
        """What a reference within the document stands for; None where that is not known."""
        if not isinstance(reference, str) or not reference.startswith("#") or "$id" in self._root:
            return None
        found: Any = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(key)] if key.isdecimal() and int(key) < len(found) else None
            else:
                found = found.get(key) if isinstance(found, Mapping) else None
        return found if reference == "#" or reference.startswith("#/") else None

    def _reached(self) -> set[int]:
        ready = [node for node, needed in enumerate(self._needed) if not needed]
        reached = set(ready)
        while ready:
            for above in self._above[ready.pop()]:
                self._needed[above] -= 1
                if self._needed[above] <= 0 and above not in reached:
                    reached.add(above)
                    ready.append(above)
        return reached
