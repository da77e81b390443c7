"""computer: the desktop's tools as one, named and shaped as Anthropic's computer-use tool has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bunshin_gym.tools.base import Tool
from bunshin_gym.tools.desktop import MAX_TEXT, MAX_WAIT, Operation, act, around

__all__ = ["COMPUTER"]

Args = Mapping[str, Any]

_CLICKS = {
    "left_click": (1, 1),
    "right_click": (3, 1),
    "middle_click": (2, 1),
    "double_click": (1, 2),
    "triple_click": (1, 3),
}
_WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
# What each action cannot do without, and what else it takes.
_TAKES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(_CLICKS, ((), ("coordinate", "text"))),
    "left_click_drag": (("coordinate",), ("start_coordinate", "text")),
    "left_mouse_down": ((), ()),
    "left_mouse_up": ((), ()),
    "mouse_move": (("coordinate",), ()),
    "scroll": (("scroll_direction", "scroll_amount"), ("coordinate", "text")),
    "key": (("text",), ()),
    "hold_key": (("text", "duration"), ()),
    "type": (("text",), ()),
    "wait": (("duration",), ()),
    "screenshot": ((), ()),
    "cursor_position": ((), ()),
}


def _chord(text: str) -> list[str]:
    """The keys of `ctrl+shift+t`; a plus sign itself is `+` or `ctrl++`."""
    keys = text.replace("++", "+plus").split("+") if text != "+" else ["plus"]
    return [key for key in keys if key]


def _goto(args: Args) -> list[Operation]:
    return [["move", *args["coordinate"]]] if "coordinate" in args else []


def _held(args: Args, operations: list[Operation]) -> list[Operation]:
    return around(_chord(args.get("text", "")), operations)


def _drag(args: Args) -> list[Operation]:
    start: list[Operation] = [["move", *args["start_coordinate"]]] if "start_coordinate" in args else []
    return _held(args, [*start, ["down", 1], ["drag", [list(args["coordinate"])]], ["up", 1]])


def _scroll(args: Args) -> list[Operation]:
    notches = args["scroll_amount"]
    turn: list[Operation] = [["click", _WHEEL[args["scroll_direction"]], notches]] if notches else []
    return _held(args, [*_goto(args), *turn])


def _keys(args: Args) -> list[Operation]:
    return [["press", _chord(chord)] for chord in args["text"].split()]


_OPERATIONS: dict[str, Callable[[Args], list[Operation]]] = {
    "left_click_drag": _drag,
    "left_mouse_down": lambda args: [["down", 1]],
    "left_mouse_up": lambda args: [["up", 1]],
    "mouse_move": _goto,
    "scroll": _scroll,
    "key": _keys,
    "hold_key": lambda args: around(_chord(args["text"]), [["pause", args["duration"]]]),
    "type": lambda args: [["type", args["text"]]],
    "wait": lambda args: [["pause", args["duration"]]],
    "screenshot": lambda args: [],
    "cursor_position": lambda args: [["where"]],
}


def _lower(args: Args) -> Any:
    action = args["action"]
    if action in _CLICKS:
        return act(_held(args, [*_goto(args), ["click", *_CLICKS[action]]]))
    return act(_OPERATIONS[action](args), settle=action != "cursor_position")


def _check(args: Args) -> str:
    action = args["action"]
    needed, optional = _TAKES[action]
    for name in needed:
        if name not in args:
            return f"the action {action!r} needs {name!r}"
    for name in args:
        if name != "action" and name not in needed and name not in optional:
            return f"the action {action!r} takes no {name!r}"
    for name in ("coordinate", "start_coordinate"):
        if name in args and len(args[name]) != 2:
            return f"{name!r} must be [x, y]"
    if not 0 <= args.get("scroll_amount", 0) <= 100:
        return "'scroll_amount' must lie between 0 and 100"
    if not 0 <= args.get("duration", 0) <= MAX_WAIT:
        return f"'duration' must lie between 0 and {MAX_WAIT:g} seconds"
    if len(args.get("text", "")) > MAX_TEXT:
        return f"'text' may have {MAX_TEXT} characters, not {len(args['text'])}"
    return "" if action != "key" or args["text"].strip() else "'text' must name a key"


def _point(what: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "integer"}, "description": f"[x, y] in pixels: {what}"}


COMPUTER = Tool(
    "computer",
    "Use the mouse and the keyboard of the desktop, and look at its screen.",
    {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(_TAKES), "description": "What to do."},
            "coordinate": _point("where to go first."),
            "start_coordinate": _point("where a drag starts."),
            "text": {
                "type": "string",
                "description": "The text to type; for key and hold_key, keys, e.g. ctrl+s; else keys held meanwhile.",
            },
            "scroll_direction": {"type": "string", "enum": list(_WHEEL), "description": "Where to."},
            "scroll_amount": {"type": "integer", "description": "Notches of the wheel."},
            "duration": {"type": "number", "description": "Seconds."},
        },
        "required": ["action"],
        "additionalProperties": False,
    },
    _check,
    lower=_lower,
)
