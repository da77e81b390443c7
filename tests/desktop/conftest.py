"""What the desktop's tests share: a started desktop, a way to have programs on it, and forks that are closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from numpy.typing import NDArray

import needs
from bunshin_gym.desktop import Desktop
from bunshin_gym.workspace import Snapshot, Workspace

SIZE = (800, 600)
WINDOWS = {
    "xterm": ("xterm -geometry 54x8+280+440", ("xterm",)),
    "mousepad": ("mousepad", ("mousepad",)),
    "pcmanfm": ("pcmanfm /work", ("pcmanfm",)),
    "mtpaint": ("mtpaint", ("mtpaint 3", "settings toolbar")),
    "featherpad": ("featherpad", ("featherpad",)),
}


def rest(desktop: Desktop) -> NDArray[np.uint8]:
    """The screen once it is at rest: no program has run for a fifth of a second, so none has a short timer running."""
    assert desktop.settle(0.2, 30.0), "the screen does not come to rest"
    return desktop.screenshot()


def difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> str:
    """Where two screens differ; empty where they are equal to the pixel."""
    rows, columns = np.nonzero((one != other).any(axis=2))
    if not len(rows):
        return ""
    return f"{len(rows)} pixels from ({columns.min()}, {rows.min()}) to ({columns.max()}, {rows.max()})"


def same(one: Desktop, other: Desktop, blinks: bool = False) -> bool:
    """Whether two screens are equal to the pixel, once both are at rest; with `blinks`, at some moments of a blink."""
    if not difference(rest(one), rest(other)):
        return True
    if not blinks:
        return False
    looks = [looks_of(desktop) for desktop in (one, other)]
    return any(not difference(mine, theirs) for mine in looks[0] for theirs in looks[1])


def looks_of(desktop: Desktop, seconds: float = 1.5) -> list[NDArray[np.uint8]]:
    """The different pictures that a screen shows over a while."""
    looks: list[NDArray[np.uint8]] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        picture = desktop.screenshot()
        if all(difference(picture, look) for look in looks):
            looks.append(picture)
        time.sleep(0.03)
    return looks


def shows(desktop: Desktop, picture: NDArray[np.uint8], blinks: bool = False) -> bool:
    """Whether the screen is equal to a picture as it is now; with `blinks`, at some moment of a blink of its cursor."""
    ends = time.monotonic() + (1.5 if blinks else 0.0)
    while difference(desktop.screenshot(), picture):
        if time.monotonic() >= ends:
            return False
        time.sleep(0.02)
    return True


def launch(desktop: Desktop, program: str) -> None:
    """Start one of the programs above, and wait for its windows."""
    needs.require(program)
    command, windows = WINDOWS[program]
    desktop.launch(command, *windows)
    if program == "featherpad":
        dismiss_warning(desktop)


def dismiss_warning(desktop: Desktop) -> None:
    """Featherpad warns root in a red bar that leaves by itself after ten seconds: whenever that may be in a test."""
    seen, ends = False, time.monotonic() + 20
    while time.monotonic() < ends:
        red = np.argwhere(np.abs(rest(desktop).astype(int) - (153, 55, 55)).max(axis=2) < 8)
        if len(red) > 1000:
            seen = True
            row, column = red[0]
            desktop.use("click", x=int(column) + 9, y=int(row) + 9)
        elif seen:
            return


@pytest.fixture
def desktop() -> Iterator[Desktop]:
    """A desktop without programs."""
    for need in ("engine native", "Xvfb", "openbox"):
        needs.require(need)
    with Workspace(separate_stderr=False, call_timeout=60) as workspace:
        yield Desktop.start(workspace, SIZE)


@pytest.fixture
def forked() -> Iterator[Callable[[Snapshot, int], list[Desktop]]]:
    """Desktops forked from a snapshot, closed at the end of the test."""
    with ExitStack() as stack:

        def fork(snapshot: Snapshot, n: int) -> list[Desktop]:
            children = snapshot.fork(n)
            for child in children:
                assert isinstance(child, Workspace), child
                stack.callback(child.close)
            return [Desktop(child) for child in children if isinstance(child, Workspace)]

        yield fork
