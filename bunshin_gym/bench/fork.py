"""What a fork costs, measured on one reference workspace, in ratios to starting that workspace anew.

The reference workspace holds its shell, a Python interpreter with numpy and 50 MB of random bytes, an HTTP server and a
sleeping process in the background. Every figure of a run comes from the same process on the same machine; times are
medians in milliseconds, memory is in bytes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bunshin_gym.bench import meter
from bunshin_gym.bench.criu import compare_with_criu
from bunshin_gym.bench.scale import Row, machine, measure_trees
from bunshin_gym.bench.timing import Part, Step, median_stages, ms_since, ninety_percent, one_child
from bunshin_gym.errors import BunshinError, WorkspaceError
from bunshin_gym.image import Image
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Snapshot, Workspace, WorkspaceSpec

__all__ = ["Figures", "Sizes", "measure"]

HEAP = 50_000_000
_PACKAGES = str(Path(np.__file__).parents[1])
_PYTHON = f"""\
import sys
sys.path.append({_PACKAGES!r})
try:
    import numpy
    data = numpy.random.default_rng().bytes({HEAP})
except ImportError:
    import os
    data = os.urandom({HEAP})
"numpy" in sys.modules
"""
_SERVER = (
    "python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &\n"
    "sleep 100000 &\n"
    "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null; do sleep 0.02; done"
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    starts: int = 5
    forks: int = 50
    batch: int = 64
    seconds: int = 20  # second snapshots
    alive: int = 500
    churn: int = 5000
    calls: int = 300
    trees: int = 20  # forks of each larger tree


QUICK = Sizes(starts=2, forks=10, batch=8, seconds=5, alive=20, churn=50, calls=50, trees=5)


@dataclass
class Figures:
    """Everything measured. Milliseconds and bytes; a stage's time is the median over its repetitions."""

    numpy: bool = False
    start_ms: float = 0.0
    snapshot_ms: float = 0.0
    snapshot_stages: dict[str, float] = field(default_factory=dict)
    snapshot_bytes: int = 0
    fork_ms: float = 0.0
    fork_p90_ms: float = 0.0
    fork_to_start: float = 0.0
    batch: int = 0
    batch_ms_each: float = 0.0
    batch_answered: int = 0
    again_ms: float = 0.0
    again_stages: dict[str, float] = field(default_factory=dict)
    again_copied: int = 0
    again_shared: int = 0
    idle_private: int = 0
    one_bytes: int = 0
    batch_bytes: int = 0
    batch_to_one: float = 0.0
    alive: int = 0
    alive_answered: int = 0
    alive_seconds: float = 0.0
    churn: int = 0
    churn_ms_first: float = 0.0
    churn_ms_last: float = 0.0
    growth: dict[str, int] = field(default_factory=dict)
    call_ms: float = 0.0
    bash_ms: float = 0.0
    criu: dict[str, Any] = field(default_factory=dict)
    trees: list[Row] = field(default_factory=list)
    machine: str = ""

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"trees": [row.as_dict() for row in self.trees]}


def reference(engine: str) -> Workspace:
    """The reference workspace, started and filled. Raises WorkspaceError where a part of it does not come up."""
    spec = WorkspaceSpec(image=Image.host(expose=[_PACKAGES]), engine=engine)
    workspace = Workspace(spec)
    try:
        python = workspace.call(ToolCall("python", {"code": _PYTHON}), timeout=60)
        server = workspace.run(_SERVER, timeout=60)
        if not (python.ok and server.ok):
            raise WorkspaceError(f"the reference workspace does not start: {python.output or server.output}")
    except BaseException:
        workspace.close()
        raise
    return workspace


def _has_numpy(workspace: Workspace) -> bool:
    return "True" in workspace.call(ToolCall("python", {"code": "'numpy' in sys.modules"})).output


def _answers(workspace: Workspace) -> bool:
    """Whether the fork's shell, interpreter and server all live."""
    shell = workspace.run("echo $((6 * 7))")
    python = workspace.call(ToolCall("python", {"code": "len(data)"}))
    return shell.output.strip() == "42" and python.output.strip() == str(HEAP)


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return ms_since(start)


def measure(
    engine: str = "native",
    sizes: Sizes | None = None,
    on_part: Callable[[str, int], None] = lambda name, count: None,
    on_step: Callable[[], None] = lambda: None,
) -> Figures:
    """All figures. `on_part(name, steps)` is told what is measured next, `on_step` when a step of it is done."""
    sizes = sizes or Sizes()
    figures = Figures()
    on_part("starting anew", sizes.starts)
    starts = []
    for _ in range(sizes.starts):
        begin = time.perf_counter()
        with reference(engine):
            starts.append(ms_since(begin))
        on_step()
    figures.start_ms = statistics.median(starts)
    with ExitStack() as stack:
        source = stack.enter_context(reference(engine))
        figures.numpy = _has_numpy(source)
        figures.one_bytes = meter.sample(_own()).total
        begin = time.perf_counter()
        snapshot = stack.enter_context(source.snapshot())
        figures.snapshot_ms = ms_since(begin)
        figures.snapshot_stages = dict(snapshot.report.stages)
        figures.snapshot_bytes = snapshot.size
        _forks(figures, sizes, snapshot, on_part, on_step)
        _batch(figures, sizes, snapshot, on_part, on_step)
        _again(figures, sizes, snapshot, on_part, on_step)
        _calls(figures, sizes, source, on_part, on_step)
        _alive(figures, sizes, snapshot, on_part, on_step)
        _churn(figures, sizes, snapshot, on_part, on_step)
    figures.trees = measure_trees(engine, sizes.trees, on_part, on_step)
    figures.machine = machine()
    on_part("unmodified CRIU under runc", 0)
    figures.criu = compare_with_criu(HEAP)
    return figures


def _own() -> int:
    return meter.pss(os.getpid())


def _forks(figures: Figures, sizes: Sizes, snapshot: Snapshot, on_part: Part, on_step: Step) -> None:
    on_part("forks of one child", sizes.forks)
    times, private = [], []
    for _ in range(sizes.forks):
        begin = time.perf_counter()
        with one_child(snapshot) as child:
            times.append(ms_since(begin))
            private.append(child.memory().private)
        on_step()
    figures.fork_ms = statistics.median(times)
    figures.fork_p90_ms = ninety_percent(times)
    figures.fork_to_start = figures.fork_ms / figures.start_ms
    figures.idle_private = int(statistics.median(private))


def _batch(figures: Figures, sizes: Sizes, snapshot: Snapshot, on_part: Part, on_step: Step) -> None:
    on_part("a batch of children", 1)
    own = _own()
    begin = time.perf_counter()
    children = snapshot.fork(sizes.batch)
    figures.batch = sizes.batch
    figures.batch_ms_each = ms_since(begin) / sizes.batch
    try:
        figures.batch_bytes = meter.sample(own).total
        figures.batch_to_one = figures.batch_bytes / max(1, figures.one_bytes)
        figures.batch_answered = sum(isinstance(child, Workspace) and _answers(child) for child in children)
    finally:
        _close(children)
    on_step()


def _again(figures: Figures, sizes: Sizes, snapshot: Snapshot, on_part: Part, on_step: Step) -> None:
    on_part("second snapshots", sizes.seconds)
    times, reports = [], []
    with one_child(snapshot) as child:
        for number in range(sizes.seconds):
            child.run(f"little={number}; echo {number} > /work/little")
            begin = time.perf_counter()
            with child.snapshot() as second:
                times.append(ms_since(begin))
                reports.append(second.report)
            on_step()
    figures.again_ms = statistics.median(times)
    figures.again_stages = median_stages(reports)
    figures.again_copied = int(statistics.median(report.bytes_copied for report in reports))
    figures.again_shared = int(statistics.median(report.bytes_shared for report in reports))


def _calls(figures: Figures, sizes: Sizes, source: Workspace, on_part: Part, on_step: Step) -> None:
    on_part("calls", sizes.calls)
    times = []
    for _ in range(sizes.calls):
        times.append(_timed(lambda: source.run(":")))
        on_step()
    figures.call_ms = statistics.median(times)
    figures.bash_ms = _bash_alone(sizes.calls)


def _bash_alone(calls: int) -> float:
    """What a plain bash on two pipes takes to run an empty command and to say that it has."""
    bash = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert bash.stdin is not None and bash.stdout is not None
    times = []
    try:
        for _ in range(calls):
            begin = time.perf_counter()
            bash.stdin.write(b":; echo .\n")
            bash.stdout.readline()
            times.append(ms_since(begin))
    finally:
        bash.stdin.close()
        bash.wait()
        bash.stdout.close()
    return statistics.median(times)


def _alive(figures: Figures, sizes: Sizes, snapshot: Snapshot, on_part: Part, on_step: Step) -> None:
    on_part("forks alive at once", sizes.alive)
    figures.alive = sizes.alive
    children: list[Workspace | WorkspaceError] = []
    begin = time.perf_counter()
    try:
        while len(children) < sizes.alive:
            children += snapshot.fork(min(50, sizes.alive - len(children)))
        for child in children:
            figures.alive_answered += (
                isinstance(child, Workspace) and child.run("echo $((6 * 7))").output.strip() == "42"
            )
            on_step()
        figures.alive_seconds = time.perf_counter() - begin
    finally:
        _close(children)


def _churn(figures: Figures, sizes: Sizes, snapshot: Snapshot, on_part: Part, on_step: Step) -> None:
    """Forks one after another: nothing may grow. The first and last tenth show whether time does."""
    on_part("forks one after another", sizes.churn)
    figures.churn = sizes.churn
    for _ in range(min(20, sizes.churn)):  # what is made once is made now
        one_child(snapshot).close()
    before = _held()
    times = []
    for _ in range(sizes.churn):
        times.append(_timed(lambda: one_child(snapshot).close()))
        on_step()
    tenth = max(1, sizes.churn // 10)
    figures.churn_ms_first, figures.churn_ms_last = statistics.median(times[:tenth]), statistics.median(times[-tenth:])
    after = _held()
    deadline = time.monotonic() + 5  # the kernel takes namespaces down in the background
    while any(after[name] > before[name] for name in ("processes", "mounts")) and time.monotonic() < deadline:
        time.sleep(0.1)
        after = _held()
    figures.growth = {name: after[name] - before[name] for name in before}


def _held() -> dict[str, int]:
    """What this process and all below it hold: counts, and bytes of memory."""
    pids = [os.getpid(), *meter.descendants(os.getpid())]
    descriptors = 0
    for pid in pids:
        try:
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return {
        "processes": len(pids),
        "descriptors": descriptors,
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "bytes": meter.sample().total,
    }


def _close(children: Iterable[Workspace | WorkspaceError]) -> None:
    for child in children:
        try:
            if isinstance(child, Workspace):
                child.close()
        except BunshinError:
            continue
