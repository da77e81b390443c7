"""Desktop: the handle of a workspace's display. Made by `start`, once; in forks by `Desktop(workspace)`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bunshin_gym.desktop.screen import read_picture
from bunshin_gym.errors import EngineUnavailable, WorkspaceError
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult
from bunshin_gym.tools.desktop import DIRECTORY, Operation, act
from bunshin_gym.workspace import Workspace

__all__ = ["ENVIRONMENT", "Desktop", "packages_of"]

# A cursor that blinks or a menu that fades in makes two equal states look different, so they do neither. Programs that
# look for a session bus or an accessibility bus, which is not there, would wait for it. xterm wipes a character's cell
# before it draws there, and with it what overhangs from the one before, unless it draws both at once, which depends on
# how the text came: so its cells are a pixel wider than the font's.
_GTK3 = """\
[Settings]
gtk-cursor-blink=0
gtk-enable-animations=0
gtk-overlay-scrolling=0
gtk-primary-button-warps-slider=0
"""
_GTK2 = """\
gtk-cursor-blink = 0
"""
_XTERM = """\
XTerm*faceName: DejaVu Sans Mono:charwidth=9
XTerm*faceSize: 10
XTerm*cursorBlink: false
XTerm*utf8: 1
"""
_FILES = {
    "/root/.Xdefaults": _XTERM,
    "/root/.config/gtk-3.0/settings.ini": _GTK3,
    "/root/.config/gtk-4.0/settings.ini": _GTK3,
    "/root/.gtkrc-2.0": _GTK2,
}
ENVIRONMENT: Final = {
    "XDG_RUNTIME_DIR": "/run/user/0",
    "NO_AT_BRIDGE": "1",
    "GTK_A11Y": "none",
    "GSETTINGS_BACKEND": "keyfile",
    "GIO_USE_VFS": "local",
    "QT_QPA_PLATFORM": "xcb",
    "LIBGL_ALWAYS_SOFTWARE": "1",
    "XCURSOR_SIZE": "16",
}
# Debian's names for what programs come in.
_PACKAGES = {
    "Xvfb": "xvfb",
    "xkbcomp": "x11-xkb-utils",
    "libX11.so.6": "libx11-6",
    "libXtst.so.6": "libxtst6",
}
_START_SECONDS = 60.0
_BACKGROUND = 0x3B4252


def packages_of(programs: Sequence[str]) -> list[str]:
    """The Debian packages that hold these programs, in order, each once."""
    return list(dict.fromkeys(_PACKAGES.get(program, program) for program in programs))


class Desktop:
    """The desktop of a workspace in which one was started, or of a fork of it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    @classmethod
    def start(
        cls,
        workspace: Workspace,
        size: tuple[int, int] = (1024, 768),
        programs: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> Desktop:
        """Start a desktop of `size` (width, height; pixels) and make it the shell's, and everything's that it starts.

        `programs` are further ones that must be there, `options` further ones of Xvfb. Raises EngineUnavailable,
        which names the Debian packages, where the image lacks any; WorkspaceError where the display does not come up.
        """
        width, height = size
        if not (64 <= width <= 8192 and 64 <= height <= 8192):
            raise ValueError(f"a screen has 64 to 8192 pixels a side, not {width} x {height}")
        inside = resources.files("bunshin_gym.desktop") / "inside"
        for name in ("driver.py", "act.sh", "start.sh", "openbox.xml"):
            workspace.write_file(f"{DIRECTORY}/{name}", (inside / name).read_bytes())
        for path, text in _FILES.items():
            workspace.write_file(path, text.encode())
        absent = _absent(workspace, programs)
        argv = ["/bin/sh", f"{DIRECTORY}/start.sh", str(width), str(height), *options]
        environment = dict(ENVIRONMENT)
        started = workspace.call(
            ToolCall("exec", {"argv": argv, "cwd": "/root", "env": environment}), timeout=_START_SECONDS
        )
        kind, _, rest = (started.output.strip().splitlines() or [""])[-1].partition(" ")
        if kind == "missing" or absent:
            raise _missing([*(rest.split() if kind == "missing" else ()), *absent])
        if kind != "display":
            raise WorkspaceError(f"cannot start a desktop: {rest or started.output.strip() or started.notice}")
        desktop = cls(workspace)
        exports = " ".join(f"{name}={value}" for name, value in (environment | {"DISPLAY": rest}).items())
        workspace.run(f"mkdir -p -m 700 /run/user/0 && export {exports}")
        desktop._do([["background", _BACKGROUND]])
        desktop.settle()
        return desktop

    def use(self, tool: str, **args: Any) -> ToolResult:
        """Use one of the desktop's tools, e.g. `use("click", x=10, y=20)`. Raises InvalidToolCall, WorkspaceBusy."""
        return self.workspace.call(ToolCall(tool, args))

    def screenshot(self) -> NDArray[np.uint8]:
        """The screen as it is now, pointer included: uint8, shape (height, width, 3). Raises WorkspaceError."""
        return read_picture(self.workspace.read_file(f"{DIRECTORY}/Xvfb_screen0"))

    def settle(self, quiet: float = 0.04, limit: float = 3.0) -> bool:
        """Wait until no program has run for `quiet` seconds and the picture stays the same, at most `limit` seconds.

        False where it moves on. Where programs run on, a picture that stays the same for a second will do.
        """
        return self._do([["settled", quiet, limit]]).strip() == "yes"

    def launch(self, command: str, *windows: str, limit: float = 30.0) -> None:
        """Start a program from the shell, in the background, and wait until its windows are there and have settled.

        A window is meant by a part of its class or title, whatever the case. Raises WorkspaceError past `limit`
        seconds.
        """
        started = self.workspace.run(f"{command} </dev/null >/dev/null 2>&1 &")
        if not started.ok:
            raise WorkspaceError(f"cannot launch {command!r}: {started.output.strip() or started.notice}")
        self.expect(*windows, limit=limit)

    def expect(self, *windows: str, limit: float = 30.0) -> None:
        """Wait until there is a window for each of `windows`, and the screen has settled. Raises WorkspaceError."""
        self._do([["await", list(windows), limit], ["settle", 0.08, 5.0]], timeout=limit + 10)

    def windows(self) -> list[str]:
        """Class and title of each window, in lower case, in the order they were opened."""
        return [title for title in self._do([["windows"]]).strip().split("; ") if title]

    def _do(self, operations: list[Operation], timeout: float | None = None) -> str:
        result = self.workspace.call(act(operations, settle=False), timeout)
        if result.exit_reason is not ExitReason.EXITED or result.exit_code != 0:
            raise WorkspaceError(f"cannot use the desktop: {result.output.strip() or result.notice}")
        return result.output


def _absent(workspace: Workspace, programs: Sequence[str]) -> list[str]:
    if not programs:
        return []
    script = 'for program; do command -v "$program" >/dev/null || echo "$program"; done'
    argv = ["/bin/sh", "-c", script, "sh", *programs]
    return workspace.call(ToolCall("exec", {"argv": argv})).output.split()


def _missing(programs: Sequence[str]) -> EngineUnavailable:
    names = list(dict.fromkeys(programs))
    packages = " ".join(packages_of(names))
    return EngineUnavailable(
        f"cannot start a desktop: the image has no {', '.join(names)} "
        f"(Debian: apt-get install --no-install-recommends {packages})"
    )
