"""A tool as the policy sees it: a name, a description, a schema for its arguments, and the check of a call against it.

Tools describe and check; engines run. The schema is the subset of JSON Schema that the check below understands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bunshin_gym.errors import InvalidToolCall
from bunshin_gym.tools.call import ToolCall

__all__ = ["Tool"]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "array": (list, tuple),
    "object": (dict,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


@dataclass(frozen=True)
class Tool:
    """One tool. `parameters` is a JSON schema of type object; `check` looks at what a schema cannot say.

    `binary` names the arguments that may hold NUL characters: all others end up as arguments of a system call, which
    end at the first one. `lower` is for tools that engines do not know: it gives the call that they run in its place.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    check: Callable[[Mapping[str, Any]], str] | None = None
    binary: frozenset[str] = frozenset()
    lower: Callable[[Mapping[str, Any]], ToolCall] | None = None

    def openai(self) -> dict[str, Any]:
        """The OpenAI function schema, a fresh object each time."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": _copy(self.parameters)},
        }

    def validate(self, args: object) -> None:
        """Raise InvalidToolCall, in words a policy can act on, unless `args` are arguments of this tool."""
        problem = _mismatch(args, self.parameters, "the arguments")
        if not problem and isinstance(args, Mapping):
            problem = next(
                (f"{name!r} must not hold a NUL character" for name, value in args.items() if self._cut(name, value)),
                "",
            )
            if not problem and self.check is not None:
                problem = self.check(args)
        if problem:
            raise InvalidToolCall(f"tool {self.name!r}: {problem}; it takes {self.signature()}")

    def _cut(self, name: str, value: object) -> bool:
        return name not in self.binary and _holds_nul(value)

    def signature(self) -> str:
        """The arguments in short, e.g. `{"path": string, "content": string}`; a question mark means optional."""
        required = self.parameters.get("required", ())
        fields = (
            f'"{name}"{"" if name in required else "?"}: {schema["type"]}'
            for name, schema in self.parameters.get("properties", {}).items()
        )
        return "{" + ", ".join(fields) + "}"


def _copy(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        return {key: _copy(value) for key, value in schema.items()}
    if isinstance(schema, (list, tuple)):
        return [_copy(value) for value in schema]
    return schema


def _holds_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return any(_holds_nul(item) for pair in value.items() for item in pair)
    return isinstance(value, (list, tuple)) and any(map(_holds_nul, value))


def _mismatch(value: object, schema: Mapping[str, Any], where: str) -> str:
    """Why `value` does not fit `schema`; empty when it does."""
    kind = str(schema["type"])
    if kind == "object" and isinstance(value, Mapping):
        return _object_mismatch(value, schema, where)
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return f"{where} must be a JSON {kind}, not {type(value).__name__}"
    if isinstance(value, str):
        return _text_mismatch(value, schema, where)
    if isinstance(value, (list, tuple)):
        if len(value) < schema.get("minItems", 0):
            return f"{where} must not be empty"
        problems = (_mismatch(item, schema["items"], f"{where}[{i}]") for i, item in enumerate(value))
        return next(filter(None, problems), "")
    return ""


def _object_mismatch(value: Mapping[Any, Any], schema: Mapping[str, Any], where: str) -> str:
    properties = schema.get("properties", {})
    extra = schema.get("additionalProperties", False)
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} lack {name!r}"
    for name, item in value.items():
        if not isinstance(name, str):
            return f"{where} must have string keys, not {name!r}"
        inner = properties.get(name, extra)
        if not inner:
            return f"{where} have an unknown entry {name!r}"
        problem = _text_mismatch(name, {}, where) or _mismatch(item, inner, repr(name))
        if problem:
            return problem
    return ""


def _text_mismatch(value: str, schema: Mapping[str, Any], where: str) -> str:
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(map(repr, schema['enum']))}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{where} must be valid Unicode (it holds an unpaired surrogate)"
    return ""
