"""What a desktop's tools become: operations of its driver, the same for every spelling."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bunshin_gym.actions import Invalid, Submit
from bunshin_gym.desktop.env import DESKTOP_INTERFACE
from bunshin_gym.looks import cacheable
from bunshin_gym.tools import ToolCall, lowered
from bunshin_gym.tools.desktop import SETTLE


def operations(tool: str, **args: Any) -> list[Any]:
    """What the driver is told, but for the settling at the end."""
    call = lowered(ToolCall(tool, args))
    assert call.name == "exec" and call.args["argv"][:2] == ["/bin/sh", "/run/desktop/act.sh"]
    told = json.loads(call.args["argv"][2])
    return told[:-1] if told[-1:] == [SETTLE] else told


def held(keys: list[str], *inner: Any) -> list[Any]:
    return [["keys", keys, True], *inner, ["keys", keys, False]]


@pytest.mark.parametrize(
    "tool, args, told",
    [
        ("click", {"x": 1, "y": 2}, [["move", 1, 2], ["click", 1, 1]]),
        (
            "click",
            {"x": 1, "y": 2, "button": "right", "keys": ["CTRL"]},
            held(["CTRL"], ["move", 1, 2], ["click", 3, 1]),
        ),
        ("double_click", {"x": 1, "y": 2}, [["move", 1, 2], ["click", 1, 2]]),
        ("scroll", {"x": 1, "y": 2, "scroll_y": -250}, [["move", 1, 2], ["click", 4, 2]]),
        ("scroll", {"x": 1, "y": 2, "scroll_x": 1}, [["move", 1, 2], ["click", 7, 1]]),
        ("scroll", {"x": 1, "y": 2}, [["move", 1, 2]]),
        ("wait", {}, [["pause", 1.0]]),
        ("screenshot", {}, []),
        ("computer", {"action": "key", "text": "ctrl+shift+t"}, [["press", ["ctrl", "shift", "t"]]]),
        ("computer", {"action": "key", "text": "ctrl++"}, [["press", ["ctrl", "plus"]]]),
        ("computer", {"action": "key", "text": "+"}, [["press", ["plus"]]]),
        (
            "computer",
            {"action": "key", "text": "Down Down Return"},
            [["press", [k]] for k in ("Down", "Down", "Return")],
        ),
        ("computer", {"action": "hold_key", "text": "shift", "duration": 0.5}, held(["shift"], ["pause", 0.5])),
        ("computer", {"action": "triple_click"}, [["click", 1, 3]]),
        ("computer", {"action": "cursor_position"}, [["where"]]),
    ],
)
def test_a_tool_is_lowered(tool: str, args: dict[str, Any], told: list[Any]) -> None:
    assert operations(tool, **args) == told


def test_no_call_of_a_desktop_is_answered_from_the_cache() -> None:
    for name in ("click", "screenshot", "computer"):
        assert not cacheable(ToolCall(name, {}))


@pytest.mark.parametrize(
    "action, call",
    [
        ('{"tool": "move", "args": {"x": 1, "y": 2}}', ToolCall("move", {"x": 1, "y": 2})),
        ('{"type": "move", "x": 1, "y": 2}', ToolCall("move", {"x": 1, "y": 2})),
        (
            '{"action": "mouse_move", "coordinate": [1, 2]}',
            ToolCall("computer", {"action": "mouse_move", "coordinate": [1, 2]}),
        ),
    ],
)
def test_three_spellings(action: str, call: ToolCall) -> None:
    assert DESKTOP_INTERFACE.parse(action) == call


@pytest.mark.parametrize(
    "action",
    [
        "",
        "[]",
        "{}",
        '{"type": 3}',
        '{"tool": "move"}',
        '{"tool": "python", "args": {"code": "1"}}',
        '{"action": "left"}',
    ],
)
def test_what_is_no_action_is_said(action: str) -> None:
    assert isinstance(DESKTOP_INTERFACE.parse(action), Invalid)


def test_the_end_and_the_samples() -> None:
    assert isinstance(DESKTOP_INTERFACE.parse('{"tool": "submit"}'), Submit)
    assert all(isinstance(DESKTOP_INTERFACE.parse(sample), ToolCall) for sample in DESKTOP_INTERFACE.samples)
