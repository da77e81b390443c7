"""How the scripts of these tasks write their actions."""

from __future__ import annotations

import json
from typing import Any


def do(tool: str, **args: Any) -> str:
    """An action of bunshin/Desktop-v0."""
    return json.dumps({"tool": tool, "args": args})


def keys(*names: str) -> str:
    """A chord."""
    return do("keypress", keys=list(names))


WAIT = do("wait", ms=500)
