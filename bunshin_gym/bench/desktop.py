"""What a fork of a live desktop costs, beside starting the same desktop anew in the same run.

The desktop has some twelve processes: the X server, a window manager, the driver, a shell, and six programs with
windows (two terminals with their shells, two editors, a file manager, a paint program). Times are medians in
milliseconds, memory is in bytes; every fork is asked whether it shows the picture that was sealed, to the pixel.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bunshin_gym.bench.timing import Part, Step, median_stages, ms_since, ninety_percent, one_child
from bunshin_gym.desktop import Desktop
from bunshin_gym.errors import WorkspaceError
from bunshin_gym.workspace import Snapshot, Workspace, WorkspaceSpec

__all__ = ["QUICK_DESKTOP", "DesktopFigures", "DesktopSizes", "measure_desktop"]

# Programs with their windows; those that the machine lacks are left out, and the report says which there were.
_PROGRAMS = (
    ("xterm -geometry 60x12+10+10", ("xterm",)),
    ("mousepad", ("mousepad",)),
    ("xterm -geometry 60x12+520+10", ()),
    ("featherpad", ("featherpad",)),
    ("mtpaint", ("mtpaint 3",)),
    ("pcmanfm /work", ("pcmanfm",)),
)
_SIZE = (1024, 768)


@dataclass(frozen=True)
class DesktopSizes:
    """How much is measured."""

    starts: int = 3
    forks: int = 30
    batch: int = 8
    seconds: int = 10


QUICK_DESKTOP = DesktopSizes(starts=1, forks=5, batch=8, seconds=2)


@dataclass
class DesktopFigures:
    """Everything measured."""

    programs: list[str] = field(default_factory=list)
    processes: int = 0
    threads: int = 0
    start_ms: float = 0.0
    seal_ms: float = 0.0
    seal_bytes: int = 0
    again_ms: float = 0.0
    again_copied: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    fork_ms: float = 0.0
    fork_p90_ms: float = 0.0
    fork_to_start: float = 0.0
    private: int = 0
    batch: int = 0
    batch_ms_each: float = 0.0
    screenshot_ms: float = 0.0
    action_ms: float = 0.0
    forks: int = 0
    same: int = 0

    def as_dict(self) -> dict[str, Any]:
        return vars(self)


def busy_desktop(engine: str = "native") -> Desktop:
    """The reference desktop, at rest. Raises EngineUnavailable where there is no X server, and WorkspaceError."""
    workspace = Workspace(WorkspaceSpec(engine=engine, separate_stderr=False, call_timeout=60.0))
    try:
        desktop = Desktop.start(workspace, _SIZE)
        for command, windows in _present():
            desktop.launch(command, *windows)
        desktop.use("type", text="in the middle of something")
        desktop.settle(0.3, 10.0)
    except BaseException:
        workspace.close()
        raise
    return desktop


def _present() -> list[tuple[str, tuple[str, ...]]]:
    return [(command, windows) for command, windows in _PROGRAMS if shutil.which(command.split()[0])]


def measure_desktop(
    engine: str = "native",
    sizes: DesktopSizes | None = None,
    on_part: Callable[[str, int], None] = lambda name, count: None,
    on_step: Callable[[], None] = lambda: None,
) -> DesktopFigures:
    """All figures. `on_part(name, steps)` is told what is measured next, `on_step` when a step of it is done."""
    sizes = sizes or DesktopSizes()
    figures = DesktopFigures(programs=[command.split()[0] for command, _ in _present()], batch=sizes.batch)
    on_part("starting anew", sizes.starts)
    starts = []
    for _ in range(sizes.starts):
        begin = time.perf_counter()
        desktop = busy_desktop(engine)
        starts.append(ms_since(begin))
        desktop.workspace.close()
        on_step()
    figures.start_ms = statistics.median(starts)
    with ExitStack() as stack:
        source = busy_desktop(engine)
        stack.callback(source.workspace.close)
        sealed = source.screenshot()
        begin = time.perf_counter()
        snapshot = stack.enter_context(source.workspace.snapshot())
        figures.seal_ms = ms_since(begin)
        figures.seal_bytes = snapshot.size
        figures.processes, figures.threads = snapshot.report.processes, snapshot.report.threads
        _forks(figures, sizes, snapshot, sealed, on_part, on_step)
        _batch(figures, sizes, snapshot, on_part, on_step)
        _again(figures, sizes, snapshot, on_part, on_step)
    return figures


def _forks(
    figures: DesktopFigures,
    sizes: DesktopSizes,
    snapshot: Snapshot,
    sealed: NDArray[np.uint8],
    on_part: Part,
    on_step: Step,
) -> None:
    on_part("forks of one child", sizes.forks)
    times, private, looks, actions = [], [], [], []
    for _ in range(sizes.forks):
        begin = time.perf_counter()
        with one_child(snapshot) as child:
            times.append(ms_since(begin))
            desktop = Desktop(child)
            begin = time.perf_counter()
            picture = desktop.screenshot()
            looks.append(ms_since(begin))
            figures.same += bool(np.array_equal(picture, sealed))
            private.append(child.memory().private)
            begin = time.perf_counter()
            desktop.use("move", x=5, y=700)
            actions.append(ms_since(begin))
        on_step()
    figures.forks = sizes.forks
    figures.fork_ms = statistics.median(times)
    figures.fork_p90_ms = ninety_percent(times)
    figures.fork_to_start = figures.fork_ms / figures.start_ms
    figures.private = int(statistics.median(private))
    figures.screenshot_ms = statistics.median(looks)
    figures.action_ms = statistics.median(actions)


def _batch(figures: DesktopFigures, sizes: DesktopSizes, snapshot: Snapshot, on_part: Part, on_step: Step) -> None:
    on_part("a batch of children", 1)
    begin = time.perf_counter()
    children = snapshot.fork(sizes.batch)
    figures.batch_ms_each = ms_since(begin) / sizes.batch
    failed = [child for child in children if isinstance(child, WorkspaceError)]
    for child in children:
        if isinstance(child, Workspace):
            child.close()
    if failed:
        raise failed[0]
    on_step()


def _again(figures: DesktopFigures, sizes: DesktopSizes, snapshot: Snapshot, on_part: Part, on_step: Step) -> None:
    on_part("second snapshots", sizes.seconds)
    times, reports = [], []
    with one_child(snapshot) as child:
        desktop = Desktop(child)
        for number in range(sizes.seconds):
            desktop.use("type", text=f"{number} ")
            begin = time.perf_counter()
            with child.snapshot() as second:
                times.append(ms_since(begin))
                reports.append(second.report)
            on_step()
    figures.again_ms = statistics.median(times)
    figures.again_copied = int(statistics.median(report.bytes_copied for report in reports))
    figures.stages = median_stages(reports)
