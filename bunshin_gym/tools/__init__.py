"""The tools every workspace offers, by name."""

from __future__ import annotations

from bunshin_gym.errors import InvalidToolCall
from bunshin_gym.tools.base import Tool
from bunshin_gym.tools.call import ExitReason, ToolCall, ToolResult
from bunshin_gym.tools.files import READ_FILE, WRITE_FILE
from bunshin_gym.tools.python import PYTHON
from bunshin_gym.tools.shell import EXEC, SHELL

__all__ = ["TOOLS", "ExitReason", "Tool", "ToolCall", "ToolResult", "validate"]

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (SHELL, EXEC, PYTHON, READ_FILE, WRITE_FILE)}


def validate(call: ToolCall) -> None:
    """Raise InvalidToolCall unless `call` names a tool and has arguments of that tool."""
    tool = TOOLS.get(call.name)
    if tool is None:
        raise InvalidToolCall(f"there is no tool {call.name!r}; there are {', '.join(TOOLS)}")
    tool.validate(call.args)
