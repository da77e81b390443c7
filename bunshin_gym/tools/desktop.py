"""The tools of a desktop: one for each thing hands and eyes do, named and shaped as in OpenAI's computer-use tool.

Each is lowered to one `exec` of the desktop's driver inside the workspace, with the operations it knows (see
bunshin_gym/desktop/inside/driver.py), and ends when the screen has settled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bunshin_gym.tools.base import Tool
from bunshin_gym.tools.call import ToolCall

__all__ = ["BUTTONS", "DESKTOP_TOOLS", "DIRECTORY", "Operation", "act", "around"]

DIRECTORY = "/run/desktop"  # where a desktop has its files, inside its workspace
BUTTONS = {"left": 1, "wheel": 2, "middle": 2, "right": 3, "back": 8, "forward": 9}
PIXELS_A_NOTCH = 100  # of the wheel, for tools that scroll by pixels
MAX_TEXT = 4096
MAX_WAIT = 30.0
SETTLE: list[Any] = ["settle", 0.04, 3.0]  # seconds of quiet, and of waiting for it

Operation = list[Any]


def act(operations: Sequence[Operation], settle: bool = True) -> ToolCall:
    """The call that has the driver do `operations`."""
    wanted = json.dumps([*operations, *([SETTLE] if settle else [])])
    return ToolCall("exec", {"argv": ["/bin/sh", f"{DIRECTORY}/act.sh", wanted], "cwd": "/"})


def around(keys: Sequence[str], operations: Sequence[Operation]) -> list[Operation]:
    """The operations with some keys held down."""
    return [["keys", list(keys), True], *operations, ["keys", list(keys), False]] if keys else list(operations)


def _integer(what: str) -> dict[str, Any]:
    return {"type": "integer", "description": what}


_X = _integer("Pixels from the left edge of the screen.")
_Y = _integer("Pixels from its upper edge.")
_BUTTON = {"type": "string", "enum": list(BUTTONS), "description": "The button; left unless given."}
_KEYS = {
    "type": "array",
    "items": {"type": "string"},
    "description": 'Keys held down meanwhile, e.g. ["CTRL"].',
}


def _tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    required: Sequence[str],
    operations: Callable[[Mapping[str, Any]], list[Operation]],
    check: Callable[[Mapping[str, Any]], str] | None = None,
) -> Tool:
    schema = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
    return Tool(name, description, schema, check, lower=lambda args: act(operations(args)))


def _click(args: Mapping[str, Any], count: int) -> list[Operation]:
    click = ["click", BUTTONS[args.get("button", "left")], count]
    return around(args.get("keys", ()), [["move", args["x"], args["y"]], click])


def _drag(args: Mapping[str, Any]) -> list[Operation]:
    points = [[point["x"], point["y"]] for point in args["path"]]
    button = BUTTONS[args.get("button", "left")]
    stroke: list[Operation] = [["move", *points[0]], ["down", button], ["drag", points[1:]], ["up", button]]
    return around(args.get("keys", ()), stroke)


def _check_drag(args: Mapping[str, Any]) -> str:
    return "" if 2 <= len(args["path"]) <= 1000 else "'path' must have 2 to 1000 points"


def _scroll(args: Mapping[str, Any]) -> list[Operation]:
    wheel = []
    for pixels, back, forth in ((args.get("scroll_y", 0), 4, 5), (args.get("scroll_x", 0), 6, 7)):
        if pixels:
            notches = max(1, round(abs(pixels) / PIXELS_A_NOTCH))
            wheel.append(["click", back if pixels < 0 else forth, notches])
    return around(args.get("keys", ()), [["move", args["x"], args["y"]], *wheel])


def _check_scroll(args: Mapping[str, Any]) -> str:
    far = max(abs(args.get("scroll_x", 0)), abs(args.get("scroll_y", 0)))
    return "" if far <= 100 * PIXELS_A_NOTCH else f"cannot scroll by more than {100 * PIXELS_A_NOTCH} pixels at a time"


def _check_text(args: Mapping[str, Any]) -> str:
    return "" if len(args["text"]) <= MAX_TEXT else f"'text' may have {MAX_TEXT} characters, not {len(args['text'])}"


def _check_wait(args: Mapping[str, Any]) -> str:
    ms = args.get("ms", 1000)
    return "" if 0 <= ms <= 1000 * MAX_WAIT else f"'ms' must lie between 0 and {1000 * MAX_WAIT:.0f}"


_POINT = {
    "type": "object",
    "properties": {"x": _X, "y": _Y},
    "required": ["x", "y"],
    "additionalProperties": False,
}
_PLACE = {"x": _X, "y": _Y}

_TOOLS = (
    _tool(
        "click",
        "Move the pointer and click.",
        {**_PLACE, "button": _BUTTON, "keys": _KEYS},
        ["x", "y"],
        lambda args: _click(args, 1),
    ),
    _tool(
        "double_click",
        "Move the pointer and click twice.",
        {**_PLACE, "button": _BUTTON, "keys": _KEYS},
        ["x", "y"],
        lambda args: _click(args, 2),
    ),
    _tool("move", "Move the pointer.", _PLACE, ["x", "y"], lambda args: [["move", args["x"], args["y"]]]),
    _tool(
        "drag",
        "Press a button at the first point of a path, move along it, and let go at the last.",
        {
            "path": {"type": "array", "items": _POINT, "minItems": 2, "description": "The points, in order."},
            "button": _BUTTON,
            "keys": _KEYS,
        },
        ["path"],
        _drag,
        _check_drag,
    ),
    _tool(
        "mouse_down",
        "Press a button where the pointer is, and keep it down.",
        {"button": _BUTTON},
        [],
        lambda args: [["down", BUTTONS[args.get("button", "left")]]],
    ),
    _tool(
        "mouse_up",
        "Let go of a button.",
        {"button": _BUTTON},
        [],
        lambda args: [["up", BUTTONS[args.get("button", "left")]]],
    ),
    _tool(
        "type",
        "Type text, any Unicode, where the focus is. A line end is the Return key.",
        {"text": {"type": "string", "description": "The text."}},
        ["text"],
        lambda args: [["type", args["text"]]],
        _check_text,
    ),
    _tool(
        "keypress",
        "Press keys together, let go in reverse order.",
        {
            "keys": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": 'Names of keys, e.g. ["CTRL", "S"], ["ENTER"], ["F2"]; X names (Page_Up) work too.',
            }
        },
        ["keys"],
        lambda args: [["press", list(args["keys"])]],
    ),
    _tool(
        "scroll",
        f"Turn the wheel over a place: a notch for every {PIXELS_A_NOTCH} pixels, at least one.",
        {
            **_PLACE,
            "scroll_x": _integer("Pixels to the right; negative: to the left."),
            "scroll_y": _integer("Pixels down; negative: up."),
            "keys": _KEYS,
        },
        ["x", "y"],
        _scroll,
        _check_scroll,
    ),
    _tool(
        "wait",
        "Wait, then until the screen has settled.",
        {"ms": _integer("Milliseconds; 1000 unless given.")},
        [],
        lambda args: [["pause", args.get("ms", 1000) / 1000]],
        _check_wait,
    ),
    _tool("screenshot", "Look at the screen once it has settled.", {}, [], lambda args: []),
)
DESKTOP_TOOLS: dict[str, Tool] = {tool.name: tool for tool in _TOOLS}
