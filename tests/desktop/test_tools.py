"""What hands and eyes do on a desktop: each tool reaches the programs, and what is wrong is said."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from bunshin_gym.desktop import Desktop, read_picture
from bunshin_gym.errors import EngineUnavailable, InvalidToolCall, WorkspaceError
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace

# Every event that the window under the pointer gets, one a line.
LISTENER = """\
import ctypes, sys
from ctypes import *
X = CDLL("libX11.so.6")
X.XOpenDisplay.restype = c_void_p
X.XCreateSimpleWindow.restype = X.XDefaultRootWindow.restype = c_ulong
d = c_void_p(X.XOpenDisplay(None))
root = c_ulong(X.XDefaultRootWindow(d))
w = c_ulong(X.XCreateSimpleWindow(d, root, 0, 0, 400, 300, 0, c_ulong(0), c_ulong(0xffffff)))
X.XStoreName(d, w, b"listener")
X.XSelectInput(d, w, c_long(1 | 2 | 4 | 8))
X.XMapWindow(d, w)
log = open("/work/events", "w", buffering=1)
event, text, symbol = (c_long * 24)(), create_string_buffer(32), c_ulong()
while True:
    X.XNextEvent(d, event)
    kind = event[0] & 0x7f
    detail = cast(event, POINTER(c_uint))[21]
    state = cast(event, POINTER(c_uint))[20]
    if kind in (2, 3):
        X.XLookupString(event, text, 32, byref(symbol), None)
        print("press" if kind == 2 else "release", hex(symbol.value), state & 0xff, file=log)
    if kind in (4, 5):
        print("down" if kind == 4 else "up", detail, state & 0xff, file=log)
"""


@pytest.fixture
def listener(desktop: Desktop) -> Desktop:
    desktop.workspace.write_file("/work/listener.py", LISTENER.encode())
    desktop.launch("python3 /work/listener.py", "listener")
    desktop.use("move", x=200, y=150)
    events(desktop)
    return desktop


def events(desktop: Desktop) -> list[str]:
    """What the listener has heard since the last look."""
    heard = desktop.workspace.read_file("/work/events").decode().splitlines()
    seen = getattr(desktop, "seen", 0)
    desktop.seen = len(heard)  # type: ignore[attr-defined]
    return heard[seen:]


def test_clicks(listener: Desktop) -> None:
    at = {"x": 210, "y": 160}
    listener.use("click", **at)
    assert events(listener) == ["down 1 0", "up 1 0"]
    listener.use("click", button="right", **at)
    assert events(listener) == ["down 3 0", "up 3 0"]
    listener.use("double_click", **at)
    assert events(listener) == ["down 1 0", "up 1 0"] * 2
    listener.use("click", button="middle", keys=["CTRL", "SHIFT"], **at)
    assert [line for line in events(listener) if line[:2] in ("do", "up")] == ["down 2 5", "up 2 5"]
    listener.use("scroll", scroll_y=300, **at)
    assert events(listener) == ["down 5 0", "up 5 0"] * 3
    listener.use("scroll", scroll_y=-1, scroll_x=100, **at)
    assert events(listener) == ["down 4 0", "up 4 0", "down 7 0", "up 7 0"]


def test_modifiers_are_held_and_let_go(listener: Desktop) -> None:
    listener.use("click", x=210, y=160, keys=["CTRL"])
    assert events(listener) == ["press 0xffe3 0", "down 1 4", "up 1 4", "release 0xffe3 4"]
    listener.use("keypress", keys=["CTRL", "SHIFT", "T"])
    assert [line.split()[0] for line in events(listener)] == ["press"] * 3 + ["release"] * 3
    listener.use("keypress", keys=["a"])
    assert events(listener) == ["press 0x61 0", "release 0x61 0"]


@pytest.mark.parametrize(
    "keys, symbol",
    [
        (["ENTER"], 0xFF0D),
        (["Page_Up"], 0xFF55),
        (["PAGEDOWN"], 0xFF56),
        (["ArrowLeft"], 0xFF51),
        (["f5"], 0xFFC2),
        (["ESC"], 0xFF1B),
    ],
)
def test_names_of_keys(listener: Desktop, keys: list[str], symbol: int) -> None:
    assert listener.use("keypress", keys=keys).ok
    assert events(listener) == [f"press {symbol:#x} 0", f"release {symbol:#x} 0"]


@pytest.mark.needs("mousepad")
def test_typed_text_arrives_as_it_is(desktop: Desktop) -> None:
    """Any Unicode, more different characters than the keyboard has free keys, capitals, and line ends."""
    strange = "".join(chr(0x4E00 + 7 * i) for i in range(300))
    text = f"Plain {{text}} ~!@#$%^&*()_+|\\ with ümläuts, ελληνικά, 日本語, 🦊 and\n\ttabs; {strange} end"
    desktop.launch("mousepad /work/typed.txt", "mousepad")
    assert desktop.use("type", text=text).ok
    desktop.use("keypress", keys=["CTRL", "S"])
    desktop.use("wait", ms=300)
    assert desktop.workspace.read_file("/work/typed.txt").decode().removesuffix("\n") == text


def test_the_two_vocabularies_do_the_same(listener: Desktop) -> None:
    pairs: list[tuple[tuple[str, dict[str, object]], dict[str, object]]] = [
        (("click", {"x": 100, "y": 100}), {"action": "left_click", "coordinate": [100, 100]}),
        (("double_click", {"x": 90, "y": 90}), {"action": "double_click", "coordinate": [90, 90]}),
        (("keypress", {"keys": ["CTRL", "S"]}), {"action": "key", "text": "ctrl+s"}),
        (("type", {"text": "Aé"}), {"action": "type", "text": "Aé"}),
        (
            ("scroll", {"x": 50, "y": 60, "scroll_y": 200}),
            {"action": "scroll", "coordinate": [50, 60], "scroll_direction": "down", "scroll_amount": 2},
        ),
        (
            ("drag", {"path": [{"x": 50, "y": 60}, {"x": 90, "y": 100}]}),
            {"action": "left_click_drag", "start_coordinate": [50, 60], "coordinate": [90, 100]},
        ),
    ]
    for (tool, args), other in pairs:
        assert listener.use(tool, **args).ok
        ours = events(listener)
        assert listener.use("computer", **other).ok
        assert ours and events(listener) == ours, (tool, other)
    listener.use("computer", action="mouse_move", coordinate=[33, 44])
    assert listener.use("computer", action="cursor_position").output.strip() == "X=33,Y=44"


def test_what_cannot_be_done_is_said(desktop: Desktop) -> None:
    result = desktop.use("click", x=800, y=10)
    assert (result.exit_code, "outside the screen of 800 x 600" in result.output) == (1, True)
    result = desktop.use("keypress", keys=["CTRL", "frobnicate"])
    assert (result.exit_code, "frobnicate" in result.output) == (1, True)
    for tool, args in (
        ("click", {"x": 1}),
        ("click", {"x": 1, "y": 1.5}),
        ("click", {"x": 1, "y": 1, "button": "fourth"}),
        ("drag", {"path": [{"x": 1, "y": 1}]}),
        ("type", {"text": "a" * 5000}),
        ("wait", {"ms": -1}),
        ("computer", {"action": "scroll", "coordinate": [1, 1]}),
        ("computer", {"action": "left_click", "duration": 1}),
        ("computer", {"action": "mouse_move", "coordinate": [1]}),
    ):
        with pytest.raises(InvalidToolCall):
            desktop.use(tool, **args)
    # A refused chord leaves no key down behind.
    assert desktop.use("click", x=1, y=1).ok


@pytest.mark.needs("engine native")
def test_a_workspace_without_a_desktop_says_so() -> None:
    with Workspace() as workspace:
        assert workspace.call(ToolCall("click", {"x": 1, "y": 1})).exit_code
        with pytest.raises(WorkspaceError):
            Desktop(workspace).screenshot()


@pytest.mark.needs("engine native")
def test_missing_programs_are_one_clear_error() -> None:
    with Workspace(env={"PATH": "/nonexistent"}) as workspace, pytest.raises(EngineUnavailable) as caught:
        Desktop.start(workspace, (640, 480), programs=("mousepad", "no-such-thing"))
    assert "apt-get install" in str(caught.value)
    for package in ("xvfb", "openbox", "no-such-thing"):
        assert package in str(caught.value)


def test_nothing_of_the_display_is_outside_the_workspace(desktop: Desktop) -> None:
    listening = desktop.workspace.run("cat /proc/net/tcp /proc/net/tcp6 | grep -c ' 0A '").output.strip()
    assert listening == "0"
    named = desktop.workspace.run("grep -c X11-unix /proc/net/unix").output.strip()
    assert int(named) >= 2  # the named and the abstract one, inside
    with open("/proc/net/unix") as outside:
        mine = desktop.workspace.run("awk '/X11-unix/ {print $7}' /proc/net/unix").output.split()
        theirs = outside.read()
    assert mine and not any(inode in theirs.split() for inode in mine)


def test_a_picture_is_read_whatever_its_header() -> None:
    width, height, pad = 5, 3, 3
    header = [
        100 + 8,
        7,
        2,
        24,
        width,
        height,
        0,
        0,
        32,
        0,
        32,
        32,
        4 * (width + pad),
        4,
        0xFF0000,
        0xFF00,
        0xFF,
        8,
        2,
        2,
    ]
    header += [width, height, 0, 0, 0]
    pixels = np.zeros((height, width + pad, 4), dtype=np.uint8)
    pixels[1, 2] = (3, 2, 1, 0)
    data = struct.pack(">25I", *header) + b"name\0\0\0\0" + bytes(24) + pixels.tobytes()
    picture = read_picture(data)
    assert picture.shape == (height, width, 3) and picture[1, 2].tolist() == [1, 2, 3] and picture.sum() == 6
    for broken in (b"", data[:50], data[:-1], struct.pack(">25I", *([0] * 25))):
        with pytest.raises(WorkspaceError):
            read_picture(broken)


def test_schemas_are_json() -> None:
    from bunshin_gym.desktop.env import DESKTOP_INTERFACE

    names = [tool["function"]["name"] for tool in json.loads(json.dumps(DESKTOP_INTERFACE.openai()))]
    assert {
        "click",
        "double_click",
        "move",
        "drag",
        "type",
        "keypress",
        "scroll",
        "wait",
        "screenshot",
        "shell",
    } <= set(names)
