"""read_file, write_file: whole files by path. A relative path starts at the workspace's starting directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bunshin_gym.tools.base import Tool

__all__ = ["READ_FILE", "WRITE_FILE"]

_PATH = {"type": "string", "description": "Path of the file; a relative one starts at the starting directory."}


def _check_path(args: Mapping[str, Any]) -> str:
    return "" if args["path"] else "'path' must not be empty"


READ_FILE = Tool(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": _PATH}, "required": ["path"], "additionalProperties": False},
    _check_path,
)

WRITE_FILE = Tool(
    "write_file",
    "Write a file, replacing what it held. Missing directories are made.",
    {
        "type": "object",
        "properties": {
            "path": _PATH,
            "content": {"type": "string", "description": "The whole new content."},
        },
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    _check_path,
    binary=frozenset({"content"}),
)
