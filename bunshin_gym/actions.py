"""From the policy's text to a move: a tool call, the submission, or a reason why it is neither.

Two interfaces: `shell` takes bash source as it is; `tools` takes a JSON object `{"tool": ..., "args": {...}}`. Both
end an episode with `submit`. What cannot be understood is not an error of the program but an answer to the policy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bunshin_gym.errors import InvalidToolCall
from bunshin_gym.tools import TOOLS, Tool, ToolCall, validate

__all__ = ["MAX_ACTION", "SHELL_INTERFACE", "TOOLS_INTERFACE", "Interface", "Invalid", "Move", "Submit"]

MAX_ACTION = 65536


@dataclass(frozen=True)
class Submit:
    """The policy says it is done."""


@dataclass(frozen=True)
class Invalid:
    """The action is no move, and why."""

    reason: str


Move = ToolCall | Submit | Invalid

SUBMIT = Tool(
    "submit",
    "Say that the task is done. This ends the episode.",
    {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)


@dataclass(frozen=True)
class Interface:
    """How actions are written: the parser, the tools it reaches, and harmless samples that give the same each time."""

    name: str
    parser: Callable[[str], Move]
    tools: tuple[Tool, ...]
    samples: tuple[str, ...]

    def parse(self, action: object) -> Move:
        """Never raises: what is wrong with the action is said in an Invalid; one that is given is passed on."""
        if isinstance(action, Invalid):
            return action
        if not isinstance(action, str):
            return Invalid(f"an action is text, not {type(action).__name__}")
        if len(action) > MAX_ACTION:
            return Invalid(f"an action has at most {MAX_ACTION} characters, not {len(action)}")
        try:
            move = self.parser(str(action))
            if isinstance(move, ToolCall):
                validate(move)
                move.key()
        except InvalidToolCall as error:
            return Invalid(str(error))
        return move

    def openai(self) -> list[dict[str, Any]]:
        """The tools as OpenAI function schemas."""
        return [tool.openai() for tool in self.tools]


def _parse_shell(action: str) -> Move:
    return Submit() if action.strip() == "submit" else ToolCall("shell", {"command": action})


_FORM = 'an action is a JSON object such as {"tool": "shell", "args": {"command": "ls"}}'


def _parse_tools(action: str) -> Move:
    try:
        value = json.loads(action)
    except (ValueError, RecursionError) as error:
        raise InvalidToolCall(f"{_FORM}; this is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("tool"), str):
        raise InvalidToolCall(f"{_FORM}; this one names no tool")
    extra = sorted(set(value) - {"tool", "args"})
    if extra:
        raise InvalidToolCall(f"{_FORM}; it has no entry {extra[0]!r}")
    args = value.get("args", {})
    if value["tool"] == SUBMIT.name:
        SUBMIT.validate(args)
        return Submit()
    if value["tool"] not in TOOLS:
        raise InvalidToolCall(f"there is no tool {value['tool']!r}; there are {', '.join([*TOOLS, SUBMIT.name])}")
    TOOLS[value["tool"]].validate(args)
    return ToolCall(value["tool"], args)


_COMMANDS = (
    "pwd",
    "echo hello",
    "true",
    "false",
    "seq 3",
    "printf 'a\\nb\\n' | wc -l",
    "echo note > note.txt && cat note.txt",
    "cat note.txt",
    "mkdir -p notes && cd notes && pwd",
    "test -d /tmp && echo yes",
    "export GREETING=hi",
    "echo $GREETING",
    "ls",
)


def _as_json(tool: str, **args: str) -> str:
    return json.dumps({"tool": tool, "args": args})


SHELL_INTERFACE = Interface("shell", _parse_shell, (TOOLS["shell"], SUBMIT), _COMMANDS)
TOOLS_INTERFACE = Interface(
    "tools",
    _parse_tools,
    (*TOOLS.values(), SUBMIT),
    (
        *(_as_json("shell", command=command) for command in _COMMANDS[:6]),
        _as_json("write_file", path="note.txt", content="note\n"),
        _as_json("read_file", path="note.txt"),
        _as_json("python", code="x = 41\nx + 1"),
        _as_json("python", code="sum(range(10))"),
    ),
)
