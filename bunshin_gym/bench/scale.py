"""What a fork costs as the tree grows: processes, threads, mappings; each beside starting that tree anew.

Every tree is a Python program that says "ready" when it stands. All figures of a run come from the same process on the
same machine; times are medians in milliseconds.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bunshin_gym.bench.timing import ms_since, one_child
from bunshin_gym.errors import WorkspaceError
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["TREES", "Row", "Tree", "machine", "measure_trees"]

_MMAP = """\
import ctypes, mmap, os, socket, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
"""

# What desktops were seen to hold: mappings of files and of memory, some written; threads; sockets, pipes, eventfds; a
# shared screen.
_DESKTOP = """\
screen = mmap.mmap(-1, 5 << 20)
screen[:] = b"\\x7f" * len(screen)
library = os.open(os.path.realpath(sys.executable), os.O_RDONLY)
kept = []

def client(mappings):
    for n in range(mappings - len(open("/proc/self/maps").readlines())):
        if n % 3 == 0:
            libc.mmap(None, 65536, 1, 2, library, 4096 * (n % 256))
        elif n % 3 == 1:
            ctypes.memset(libc.mmap(None, 65536, 3, 0x22, -1, 0), n % 250 + 1, 4096 * (1 + n % 4))
        else:
            place = libc.mmap(None, 65536, 3 if n % 2 else 1, 2, library, 0)
            if n % 2:
                ctypes.memset(place + 4096, 7, 8192)
    for _ in range(4):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    kept.extend([[os.pipe() for _ in range(6)], [os.eventfd(0) for _ in range(4)]])

for number in range(11):
    here, there = socket.socketpair()
    kept.append(here)
    if os.fork() == 0:
        client(300 + 60 * number)
        there.send(b"!")
        time.sleep(1000000)
    here.recv(1)
"""
_CROWD = """\
for _ in range(99):
    if os.fork() == 0:
        time.sleep(1000000)
"""
_THREADS = """\
threading.stack_size(65536)
for _ in range(1000):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
_MAPPINGS = """\
place = libc.mmap(None, 60000 * 4096, 3, 0x22, -1, 0)
for page in range(0, 60000, 2):
    assert libc.mprotect(place + page * 4096, 4096, 1) == 0
for page in range(1, 60000, 50):
    ctypes.memset(place + page * 4096, page % 250 + 1, 4096)
"""


@dataclass(frozen=True)
class Tree:
    name: str
    source: str

    @property
    def program(self) -> str:
        return f'{_MMAP}{self.source}print("ready", flush=True)\ntime.sleep(1000000)\n'


TREES = (
    Tree("a desktop's 12 processes", _DESKTOP),
    Tree("100 processes", _CROWD),
    Tree("1,000 threads", _THREADS),
    Tree("60,000 mappings", _MAPPINGS),
)


@dataclass
class Row:
    """One tree. `first_ms` is the first snapshot, which stores all memory; `again_ms` a later one of the same tree."""

    name: str
    processes: int = 0
    threads: int = 0
    start_ms: float = 0.0
    fork_ms: float = 0.0
    fork_to_start: float = 0.0
    first_ms: float = 0.0
    again_ms: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def machine() -> str:
    """What a figure was measured on."""
    model = "unknown processor"
    cores = 0
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            cores += 1
    return f"{cores} × {model}, Linux {platform.release()}"


def start_tree(tree: Tree, engine: str) -> Workspace:
    """A workspace in which this tree stands. Raises WorkspaceError where it does not come up."""
    workspace = Workspace(WorkspaceSpec(engine=engine, pids_limit=None))
    try:
        workspace.write_file("/tmp/tree.py", tree.program.encode())
        command = (
            "mkfifo /tmp/told; python3 /tmp/tree.py >/tmp/told 2>&1 </dev/null & read -r word </tmp/told; echo $word"
        )
        word = workspace.run(command, timeout=60).output.strip()
        if word != "ready":
            raise WorkspaceError(f"{tree.name} cannot be started: {word}")
    except BaseException:
        workspace.close()
        raise
    return workspace


def measure_trees(
    engine: str, forks: int, on_part: Callable[[str, int], None], on_step: Callable[[], None]
) -> list[Row]:
    """A row for every tree, from `forks` forks each. Raises WorkspaceError where a fork fails."""
    return [_measure(tree, engine, forks, on_part, on_step) for tree in TREES]


def _measure(
    tree: Tree, engine: str, forks: int, on_part: Callable[[str, int], None], on_step: Callable[[], None]
) -> Row:
    on_part(tree.name, forks)
    row = Row(tree.name)
    begin = time.perf_counter()
    with start_tree(tree, engine) as source:
        row.start_ms = ms_since(begin)
        begin = time.perf_counter()
        source.snapshot().close()
        row.first_ms = ms_since(begin)
        again, times = [], []
        for _ in range(3):
            begin = time.perf_counter()
            snapshot = source.snapshot()
            again.append(ms_since(begin))
            snapshot.close()
        with source.snapshot() as snapshot:
            row.processes, row.threads = snapshot.report.processes, snapshot.report.threads
            for _ in range(forks):
                begin = time.perf_counter()
                child = one_child(snapshot)
                times.append(ms_since(begin))
                child.close()
                on_step()
    row.fork_ms, row.again_ms = statistics.median(times), statistics.median(again)
    row.fork_to_start = row.fork_ms / row.start_ms
    return row
