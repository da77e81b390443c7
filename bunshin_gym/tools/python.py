"""python: a persistent interpreter."""

from __future__ import annotations

from bunshin_gym.tools.base import Tool

__all__ = ["PYTHON"]

PYTHON = Tool(
    "python",
    "Run Python code in an interpreter that lives as long as the workspace. The value of a last expression is shown, "
    "an exception is shown as text, variables stay.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source, one or more lines."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
