"""The tools every workspace offers, by name."""

from __future__ import annotations

from bunshin_gym.errors import InvalidToolCall
from bunshin_gym.tools.base import Tool
from bunshin_gym.tools.call import ExitReason, ToolCall, ToolResult
from bunshin_gym.tools.computer import COMPUTER
from bunshin_gym.tools.desktop import DESKTOP_TOOLS
from bunshin_gym.tools.files import READ_FILE, WRITE_FILE
from bunshin_gym.tools.python import PYTHON
from bunshin_gym.tools.shell import EXEC, SHELL

__all__ = ["COMPUTER", "DESKTOP_TOOLS", "TOOLS", "ExitReason", "Tool", "ToolCall", "ToolResult", "lowered", "validate"]

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (SHELL, EXEC, PYTHON, READ_FILE, WRITE_FILE)}
# What a workspace with a desktop in it offers besides.
_KNOWN = TOOLS | DESKTOP_TOOLS | {COMPUTER.name: COMPUTER}


def validate(call: ToolCall) -> None:
    """Raise InvalidToolCall unless `call` names a tool and has arguments of that tool."""
    tool = _KNOWN.get(call.name)
    if tool is None:
        raise InvalidToolCall(f"there is no tool {call.name!r}; there are {', '.join(TOOLS)}")
    tool.validate(call.args)


def lowered(call: ToolCall) -> ToolCall:
    """The call that an engine runs for a valid `call`: itself, but for the tools of a desktop."""
    lower = _KNOWN[call.name].lower
    return call if lower is None else lower(call.args)
