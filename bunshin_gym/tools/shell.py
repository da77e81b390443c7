"""shell: a persistent bash. exec: a fresh process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bunshin_gym.tools.base import Tool

__all__ = ["EXEC", "SHELL"]

SHELL = Tool(
    "shell",
    "Run a command in a bash that lives as long as the workspace: the working directory, variables, functions and "
    "background jobs stay. Standard input is empty.",
    {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "Bash source, one or more lines."}},
        "required": ["command"],
        "additionalProperties": False,
    },
)


def _check_exec(args: Mapping[str, Any]) -> str:
    if ("argv" in args) == ("command" in args):
        return "give either 'argv' or 'command'"
    if "argv" in args and "shell" in args:
        return "'shell' goes with 'command', not with 'argv'"
    return ""


EXEC = Tool(
    "exec",
    "Run a program in a fresh process, apart from the shell: an argument vector, or a command for a given shell.",
    {
        "type": "object",
        "properties": {
            "argv": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "Program and arguments.",
            },
            "command": {"type": "string", "description": "A command line, run as `shell` + [command]."},
            "shell": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": 'What runs the command; ["/bin/sh", "-c"] unless given.',
            },
            "cwd": {"type": "string", "description": "Directory to start in."},
            "env": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Variables to add to the environment.",
            },
            "stdin": {
                "type": "string",
                "enum": ["empty", "open"],
                "description": "End of file at once, or a silent pipe that stays open.",
            },
        },
        "required": [],
        "additionalProperties": False,
    },
    _check_exec,
)
