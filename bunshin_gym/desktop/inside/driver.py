"""The hand and the eye of a desktop: runs inside the workspace, and does with the display what it is told.

It reads a request a line from a FIFO, `ID [[operation, argument, ...], ...]`, and answers each with a line,
`ID ok TEXT` or `ID error TEXT`. Keys and buttons go through the XTEST extension, so that programs cannot tell them from
a person's. A client may be gone when its answer comes: the next one skips lines that are not its own.

Only the standard library, libX11 and libXtst: this is what an image with an X server has.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterable
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_uint, c_ulong, c_void_p
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ALIASES = {
    "alt": "Alt_L", "option": "Alt_L", "altgr": "ISO_Level3_Shift", "ctrl": "Control_L", "control": "Control_L",
    "shift": "Shift_L", "super": "Super_L", "meta": "Super_L", "cmd": "Super_L", "command": "Super_L", "win": "Super_L",
    "enter": "Return", "esc": "Escape", "del": "Delete", "ins": "Insert", "bksp": "BackSpace", "spacebar": "space",
    "arrowleft": "Left", "arrowright": "Right", "arrowup": "Up", "arrowdown": "Down", "pageup": "Page_Up",
    "pagedown": "Page_Down", "pgup": "Page_Up", "pgdn": "Page_Down", "capslock": "Caps_Lock", "printscreen": "Print",
    "plus": "plus", "minus": "minus", "\n": "Return", "\r": "Return", "\t": "Tab", " ": "space",
}  # fmt: skip
# Names that X spells in its own way, found whatever their case.
NAMES = (
    "Return Escape Tab BackSpace Delete Insert Home End Left Right Up Down Page_Up Page_Down Print Pause Menu "
    "Caps_Lock Num_Lock Scroll_Lock space Shift_L Shift_R Control_L Control_R Alt_L Alt_R Super_L Super_R Hyper_L "
    "ISO_Left_Tab KP_Enter " + " ".join(f"F{n}" for n in range(1, 25))
).split()
FOLDED = {name.lower(): name for name in NAMES}


XA_STRING = 31
MEDIA = 0x1008FF  # the upper bytes of the symbols of keys for volume, mail and such: good to be lent
STILL = 1.0  # seconds for which a picture must stay the same while programs run


class Refused(Exception):
    """An operation that cannot be done; the text says why."""


def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(name)


X = _library("libX11.so.6")
XTST = _library("libXtst.so.6")
X.XOpenDisplay.restype, X.XOpenDisplay.argtypes = c_void_p, [c_char_p]
X.XDefaultRootWindow.restype, X.XDefaultRootWindow.argtypes = c_ulong, [c_void_p]
X.XStringToKeysym.restype, X.XStringToKeysym.argtypes = c_ulong, [c_char_p]
X.XGetKeyboardMapping.restype = POINTER(c_ulong)
X.XGetKeyboardMapping.argtypes = [c_void_p, ctypes.c_ubyte, c_int, POINTER(c_int)]
X.XChangeKeyboardMapping.argtypes = [c_void_p, c_int, c_int, POINTER(c_ulong), c_int]
X.XDeleteProperty.argtypes = [c_void_p, c_ulong, c_ulong]
X.XChangeProperty.argtypes = [c_void_p, c_ulong, c_ulong, c_ulong, c_int, c_int, c_char_p, c_int]
X.XSync.argtypes = [c_void_p, c_int]
X.XFree.argtypes = [c_void_p]
X.XDisplayKeycodes.argtypes = [c_void_p, POINTER(c_int), POINTER(c_int)]
X.XQueryPointer.argtypes = [c_void_p, c_ulong, *[POINTER(c_ulong)] * 2, *[POINTER(c_int)] * 4, POINTER(c_uint)]
X.XSetWindowBackground.argtypes = [c_void_p, c_ulong, c_ulong]
X.XClearWindow.argtypes = [c_void_p, c_ulong]
X.XInternAtom.restype, X.XInternAtom.argtypes = c_ulong, [c_void_p, c_char_p, c_int]
X.XGetWindowProperty.argtypes = [
    c_void_p, c_ulong, c_ulong, c_long, c_long, c_int, c_ulong,
    POINTER(c_ulong), POINTER(c_int), POINTER(c_ulong), POINTER(c_ulong), POINTER(c_void_p),
]  # fmt: skip
ERROR_HANDLER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
X.XSetErrorHandler.restype, X.XSetErrorHandler.argtypes = c_void_p, [ERROR_HANDLER]
XTST.XTestFakeKeyEvent.argtypes = [c_void_p, c_uint, c_int, c_ulong]
XTST.XTestFakeButtonEvent.argtypes = [c_void_p, c_uint, c_int, c_ulong]
XTST.XTestFakeMotionEvent.argtypes = [c_void_p, c_int, c_int, c_int, c_ulong]


class Keyboard:
    """Which key gives which symbol. A symbol that no key has is put on a key that had none, and stays there."""

    def __init__(self, display: int) -> None:
        self.display = display
        low, high = c_int(), c_int()
        X.XDisplayKeycodes(display, byref(low), byref(high))
        count, width = high.value - low.value + 1, c_int()
        table = X.XGetKeyboardMapping(display, low.value, count, byref(width))
        self.width = width.value
        self.rows: dict[int, list[int]] = {}
        self.keys: dict[int, tuple[int, bool]] = {}
        self.spare: list[int] = []
        self.borrowed: list[int] = []
        for row in range(count):
            symbols = [table[row * self.width + column] for column in range(self.width)]
            self.rows[low.value + row] = symbols
            if all(symbol == 0 or symbol >> 8 == MEDIA for symbol in symbols):
                self.spare.append(low.value + row)
                continue
            for column in (0, 1):
                if column < len(symbols) and symbols[column]:
                    self.keys.setdefault(symbols[column], (low.value + row, column == 1))
        X.XFree(table)

    def lend(self, symbols: Iterable[int]) -> None:
        """Put each of `symbols` on a key of its own, where it has none."""
        wanted = [symbol for symbol in dict.fromkeys(symbols) if symbol not in self.keys]
        if len(wanted) > len(self.spare):
            self.take_back()
        if len(wanted) > len(self.spare):
            raise Refused("the keyboard has not enough keys to borrow")
        codes = sorted(self.spare[: len(wanted)])
        del self.spare[: len(wanted)]
        for symbol, code in zip(wanted, codes, strict=True):
            self.keys[symbol] = (code, False)
            self.borrowed.append(symbol)
        if not codes:
            return
        for symbol, code in zip(wanted, codes, strict=True):
            self.rows[code] = [symbol] * self.width
        # A change makes every program read the whole keyboard anew (openbox takes 50 ms for it): so one for all keys,
        # with those between them as they are.
        symbols = [symbol for code in range(codes[0], codes[-1] + 1) for symbol in self.rows[code]]
        count = codes[-1] - codes[0] + 1
        X.XChangeKeyboardMapping(self.display, codes[0], self.width, (c_ulong * len(symbols))(*symbols), count)
        X.XSync(self.display, 0)

    def take_back(self) -> None:
        """All keys that were lent can be lent again."""
        self.spare = sorted(self.spare + [self.keys.pop(symbol)[0] for symbol in self.borrowed])
        self.borrowed.clear()

    def find(self, name: str) -> int:
        """The symbol of a key by its name, in any of the usual spellings. Raises Refused."""
        folded = name.lower()
        if len(name) == 1 and name not in ALIASES:
            return _symbol(name)
        known = ALIASES.get(name) or ALIASES.get(folded) or FOLDED.get(folded.replace(" ", "_")) or name
        symbol = int(X.XStringToKeysym(known.encode())) or int(X.XStringToKeysym(folded.encode()))
        if not symbol:
            raise Refused(f"there is no key {name!r}")
        return symbol


def _symbol(character: str) -> int:
    if character in "\n\r":
        return 0xFF0D
    if character == "\t":
        return 0xFF09
    code = ord(character)
    if code < 0x20 or 0x7F <= code < 0xA0:
        raise Refused(f"there is no key for the control character {character!r}")
    return code if code < 0x100 else 0x01000000 | code


class Screen:
    """The screen as the server draws it: a mapped XWD file."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        header = struct.unpack(">25I", self.map[:100])
        self.width, self.height = header[4], header[5]

    def digest(self) -> int:
        return zlib.crc32(self.map)


class Hand:
    """Keys and buttons of one display."""

    def __init__(self, name: str) -> None:
        self._ignore = ERROR_HANDLER(lambda display, event: 0)  # a window that has just gone is no reason to end
        X.XSetErrorHandler(self._ignore)
        self.display = X.XOpenDisplay(name.encode())
        if not self.display:
            raise SystemExit(f"cannot open the display {name}")
        self.root = X.XDefaultRootWindow(self.display)
        self.keyboard = Keyboard(self.display)
        self.screen = Screen(HERE / "Xvfb_screen0")

    def sync(self) -> None:
        X.XSync(self.display, 0)

    # -- the operations, by name

    def do_move(self, x: int, y: int) -> None:
        if not (0 <= x < self.screen.width and 0 <= y < self.screen.height):
            raise Refused(f"({x}, {y}) lies outside the screen of {self.screen.width} x {self.screen.height}")
        XTST.XTestFakeMotionEvent(self.display, -1, x, y, 0)
        self.sync()

    def do_drag(self, path: list[list[int]]) -> None:
        """Along a path, in steps small enough that programs see where it went."""
        x, y = self.where()
        for goal_x, goal_y in path:
            steps = max(1, max(abs(goal_x - x), abs(goal_y - y)) // 8)
            for step in range(1, steps + 1):
                self.do_move(x + (goal_x - x) * step // steps, y + (goal_y - y) * step // steps)
                time.sleep(0.002)
            x, y = goal_x, goal_y

    def do_down(self, button: int) -> None:
        XTST.XTestFakeButtonEvent(self.display, button, 1, 0)
        self.sync()

    def do_up(self, button: int) -> None:
        XTST.XTestFakeButtonEvent(self.display, button, 0, 0)
        self.sync()

    def do_click(self, button: int, count: int) -> None:
        for _ in range(count):
            self.do_down(button)
            time.sleep(0.008)  # some programs take no notice of a button that was down for no time at all
            self.do_up(button)
            time.sleep(0.008)

    def do_keys(self, names: list[str], down: bool) -> None:
        symbols = [self.keyboard.find(name) for name in names]
        self.keyboard.lend(symbols)
        for symbol in symbols if down else reversed(symbols):
            code, shifted = self.keyboard.keys[symbol]
            if shifted and down:
                self._key("Shift_L", True)
            XTST.XTestFakeKeyEvent(self.display, code, int(down), 0)
            if shifted and not down:
                self._key("Shift_L", False)
        self.sync()

    def do_press(self, names: list[str]) -> None:
        """A chord: all down in order, all up in reverse."""
        if len(names) > 1:  # CTRL A is the key a with control: who wants shift as well says so
            names = [name.lower() if len(name) == 1 else name for name in names]
        self.do_keys(names, True)
        if len(names) > 1:
            # Held until programs have taken notice. Where Alt Tab is over before openbox has grabbed the keyboard, it
            # never sees the end of it, and swallows the next key.
            self.do_settle(0.01, 0.3)
        self.do_keys(names, False)

    def do_type(self, text: str) -> None:
        symbols = [_symbol(character) for character in text]
        while symbols:
            # No more unusual symbols at a time than there are keys for them; and before such a key gets another symbol,
            # all programs must have understood what was typed with it.
            strange: dict[int, None] = {}
            length = 0
            for symbol in symbols:
                if symbol not in self.keyboard.keys and symbol not in strange:
                    if len(strange) == len(self.keyboard.spare):
                        break
                    strange[symbol] = None
                length += 1
            if not length:
                self.do_settle(0.03, 2.0)
                self.keyboard.take_back()
                continue
            self.keyboard.lend(strange)
            self._strike(symbols[:length])
            del symbols[:length]

    def _strike(self, symbols: list[int]) -> None:
        for number, symbol in enumerate(symbols):
            code, shifted = self.keyboard.keys[symbol]
            if shifted:
                self._key("Shift_L", True)
            XTST.XTestFakeKeyEvent(self.display, code, 1, 0)
            XTST.XTestFakeKeyEvent(self.display, code, 0, 0)
            if shifted:
                self._key("Shift_L", False)
            if number % 32 == 31:
                self.sync()
        self.sync()

    def _key(self, name: str, down: bool) -> None:
        code, _ = self.keyboard.keys[self.keyboard.find(name)]
        XTST.XTestFakeKeyEvent(self.display, code, int(down), 0)

    def do_pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def do_background(self, colour: int) -> None:
        X.XSetWindowBackground(self.display, self.root, colour)
        X.XClearWindow(self.display, self.root)
        self.sync()

    def do_where(self) -> str:
        return "X={},Y={}".format(*self.where())

    def do_await(self, names: list[str], limit: float) -> None:
        """Wait until there is a window for each of `names`, which its class or its title holds, whatever the case."""
        begin, wanted = time.monotonic(), [name.lower() for name in names]
        while True:
            shown = self._windows()
            absent = [name for name in wanted if not any(name in title for title in shown)]
            if not absent:
                return
            if time.monotonic() > begin + limit:
                there = ", ".join(map(repr, shown)) or "none"
                raise Refused(f"no window {absent[0]!r} has come up within {limit:g} s; there are: {there}")
            self._nudge()
            time.sleep(0.02)

    def _nudge(self) -> None:
        """Openbox now and then leaves an event in its own queue until the next one comes: here is one."""
        atom = X.XInternAtom(self.display, b"_BUNSHIN_NUDGE", 0)
        X.XDeleteProperty(self.display, self.root, atom)
        X.XChangeProperty(self.display, self.root, atom, XA_STRING, 8, 0, b"", 0)
        self.sync()

    def await_manager(self, limit: float) -> None:
        """Wait for the window manager: windows that come up before it does are lost to it, or placed anywhere."""
        begin = time.monotonic()
        while not self._property(self.root, "_NET_SUPPORTING_WM_CHECK"):
            if time.monotonic() > begin + limit:
                raise SystemExit(f"no window manager has come up within {limit:g} s")
            time.sleep(0.01)

    def do_windows(self) -> str:
        return "; ".join(self._windows())

    def _windows(self) -> list[str]:
        """Class and title of each window that the window manager manages."""
        titles = []
        data = self._property(self.root, "_NET_CLIENT_LIST")
        for number in struct.unpack(f"{len(data) // 8}Q", data):
            parts = [self._property(number, name) for name in ("WM_CLASS", "_NET_WM_NAME")]
            if not parts[1]:
                parts[1] = self._property(number, "WM_NAME")
            titles.append(" ".join(part.decode(errors="replace").replace("\0", " ").strip() for part in parts).lower())
        return titles

    def _property(self, window: int, name: str) -> bytes:
        kind, bits, count, rest, value = c_ulong(), c_int(), c_ulong(), c_ulong(), c_void_p()
        atom = X.XInternAtom(self.display, name.encode(), 0)
        if X.XGetWindowProperty(
            self.display, window, atom, 0, 4096, 0, 0, byref(kind), byref(bits), byref(count), byref(rest), byref(value)
        ):
            return b""  # the window has just gone
        size = count.value * (8 if bits.value == 32 else bits.value // 8)  # 32-bit items come as longs
        data = ctypes.string_at(value, size) if value else b""
        if value:
            X.XFree(value)
        return data

    def do_settle(self, quiet: float, limit: float) -> None:
        """Wait until the screen has settled, at most `limit` seconds."""
        self.do_settled(quiet, limit)

    def do_settled(self, quiet: float, limit: float) -> str:
        """The same; and say whether it has.

        It has when for `quiet` seconds no program ran and the picture stayed the same; or when the picture stayed
        the same for a second while programs run on without drawing.
        """
        self.sync()
        begin = time.monotonic()
        picture, still, busy, nudged = self.screen.digest(), begin, Busy(), False
        while time.monotonic() < begin + limit:
            time.sleep(quiet / 2)
            idle = busy.idle()
            latest = self.screen.digest()
            now = time.monotonic()
            if latest != picture:
                picture, still, nudged = latest, now, False
            elif idle >= quiet / 2 and not nudged:
                self._nudge()
                nudged = True
            elif (idle >= quiet and now - still >= quiet) or now - still >= STILL:
                return "yes"
        return "no"

    def where(self) -> tuple[int, int]:
        windows, numbers, mask = [c_ulong(), c_ulong()], [c_int() for _ in range(4)], c_uint()
        X.XQueryPointer(self.display, self.root, *map(byref, windows), *map(byref, numbers), byref(mask))
        return numbers[0].value, numbers[1].value


class Busy:
    """Whether any program of the workspace runs: looks at all threads but pid 1's, our own and our client's."""

    SLACK = 100_000  # ns of running in a look's interval that still count as idle: a timer that looks and sleeps again

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self.since = time.monotonic()
        self._look()

    def idle(self) -> float:
        """For how many seconds nobody has run, up to now."""
        if self._look():
            self.since = time.monotonic()
        return time.monotonic() - self.since

    def _look(self) -> bool:
        own, running, spent = str(os.getpid()), False, {}
        for process in os.listdir("/proc"):
            if not process.isdigit() or process in ("1", own):
                continue
            try:
                for thread in os.listdir(f"/proc/{process}/task"):
                    with open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
                        state, *rest = file.read().rpartition(b")")[2].split()
                    if state == b"Z":
                        continue
                    running = running or state in b"RD"
                    spent[thread] = _nanoseconds(process, thread, rest)
            except OSError:
                continue
        before, self.spent = self.spent, spent
        ran = sum(total - before.get(thread, total) for thread, total in spent.items())
        return running or ran > self.SLACK or any(thread not in before for thread in spent)


def _nanoseconds(process: str, thread: str, stat: list[bytes]) -> int:
    try:
        with open(f"/proc/{process}/task/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[0])
    except (OSError, IndexError):
        return (int(stat[10]) + int(stat[11])) * 10_000_000


def answer(hand: Hand, request: str) -> str:
    number, _, text = request.partition(" ")
    said = ""
    try:
        for name, *arguments in json.loads(text):
            said = getattr(hand, f"do_{name}")(*arguments) or said
    except Refused as refusal:
        return f"{number} error {refusal}"
    except Exception as error:
        return f"{number} error {type(error).__name__}: {error}"
    return f"{number} ok {said}"


def main() -> None:
    hand = Hand(sys.argv[1])
    hand.await_manager(20.0)
    # Held open for reading and writing, so that neither end ever sees an end of file.
    requests = os.fdopen(os.open(HERE / "request", os.O_RDWR), encoding="utf-8", newline="\n")
    replies = os.open(HERE / "reply", os.O_RDWR)
    (HERE / "driver.pid").write_text(f"{os.getpid()}\n")
    for line in iter(requests.readline, ""):
        reply: Any = answer(hand, line.rstrip("\n"))
        os.write(replies, (reply.replace("\n", " ")[:2000] + "\n").encode())


if __name__ == "__main__":
    main()
