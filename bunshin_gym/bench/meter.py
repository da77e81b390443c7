"""Memory over time: PSS of every process we have started, plus the page stores that their forks share.

PSS counts a page that k processes map as 1/k for each, so that the sum over all of them counts it once. Page stores are
memory files: their bytes count in full, once, however often they are mapped, although the mapped part of them is in PSS
too. So what we report for ourselves is rather too much than too little. This process counts with what it has grown
since the meter started (the call tree and its results live in it).
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Meter", "Sample", "descendants", "sample"]

_STORE = "/memfd:bunshin"
_POINTS = 2000  # that are kept at most


@dataclass(frozen=True)
class Sample:
    """One look: bytes of PSS, bytes of page stores, and how many processes there were."""

    pss: int
    stores: int
    processes: int

    @property
    def total(self) -> int:
        return self.pss + self.stores


def descendants(pid: int) -> list[int]:
    """The pids of all processes below `pid`."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = Path(entry.path, "stat").read_text(errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def pss(pid: int) -> int:
    """The proportional share of a process, in bytes; 0 where it is gone."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def stores(pid: int) -> dict[tuple[int, int], int]:
    """The page stores a process holds open: their identity, and the bytes they take."""
    found = {}
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(entry.path).startswith(_STORE):
                    info = os.stat(entry.path)
                    found[info.st_dev, info.st_ino] = info.st_blocks * 512
    return found


def sample(own_before: int = 0) -> Sample:
    """One look at this process and all below it. `own_before`: what this process had, and is not to count."""
    me = os.getpid()
    below = descendants(me)
    held: dict[tuple[int, int], int] = {}
    for pid in (me, *below):
        held |= stores(pid)
    grown = max(0, pss(me) - own_before)
    return Sample(grown + sum(map(pss, below)), sum(held.values()), len(below))


class Meter:
    """Samples while a `with` block runs, or until `stop`. A sample takes the longer the more processes there are, so it
    rests `rest` times that.

    `peak`: bytes; `integral`: bytes x seconds, by the trapezoid rule; `samples`: how many looks that rests on. `points`
    has seconds since the start, PSS and stores of the looks; of a long run, of every second, fourth … of them.
    """

    def __init__(self, interval: float = 0.1, rest: float = 4) -> None:
        self.interval = interval
        self.rest = rest
        self.peak = 0
        self.integral = 0.0
        self.samples = 0
        self.seconds = 0.0
        self.points: list[tuple[float, int, int]] = []
        self._every = 1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bunshin-meter", daemon=True)

    def __enter__(self) -> Self:
        self._own = pss(os.getpid())
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """The end of it. Idempotent."""
        if not self._stop.is_set():
            self.seconds = time.perf_counter() - self._start
            self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last_time, last_total = self._start, 0
        while not self._stop.is_set():
            begin = time.perf_counter()
            look = sample(self._own)
            total = look.total
            now = time.perf_counter()
            self._point(now - self._start, look)
            self.samples += 1
            self.peak = max(self.peak, total)
            self.integral += (total + last_total) / 2 * (now - last_time)
            last_time, last_total = now, total
            self._stop.wait(max(self.interval, self.rest * (now - begin)))
        self.integral += last_total * max(0.0, self._start + self.seconds - last_time)

    def _point(self, at: float, look: Sample) -> None:
        if self.samples % self._every == 0:
            self.points.append((at, look.pss, look.stores))
        if len(self.points) > _POINTS:
            self.points = self.points[::2]
            self._every *= 2
