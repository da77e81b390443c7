"""A long run: epoch after epoch on one executor, and whether anything grows that should not.

Every epoch begins each task from a state of its own, so that the tree keeps growing until its bounds hold it; what is
looked at is looked at between epochs, when no rollout is open.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bunshin_gym.bench import meter
from bunshin_gym.bench.rollout.modes import OURS
from bunshin_gym.group import Group, play, repeat
from bunshin_gym.image import state_parent
from bunshin_gym.scripted import scripts_of
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolCall, ToolResult
from bunshin_gym.tree import Tree
from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["Level", "Soak", "soak"]


@dataclass(frozen=True)
class Level:
    """One look. `rss` and `stores` in bytes; `nodes`, `results` (bytes) and `snapshots` are the tree's."""

    at: float
    epoch: int
    rss: int
    stores: int
    fds: int
    threads: int
    processes: int
    mounts: int
    folders: int
    nodes: int
    results: int
    snapshots: int


@dataclass
class Soak:
    """`levels`: a look an epoch. By the end of the first quarter every bound should have been met."""

    seconds: float = 0.0
    epochs: int = 0
    calls: int = 0
    levels: list[Level] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)

    def growth(self) -> dict[str, tuple[float, float]]:
        """For each thing its mean over the second quarter of the looks, and over the last."""
        n = len(self.levels)
        second, last = self.levels[n // 4 : max(n // 2, n // 4 + 1)], self.levels[3 * n // 4 :]
        names = [name for name in Level.__dataclass_fields__ if name not in ("at", "epoch")]

        def mean(levels: Sequence[Level], name: str) -> float:
            return sum(getattr(level, name) for level in levels) / len(levels) if levels else 0.0

        return {name: (mean(second, name), mean(last, name)) for name in names}

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"levels": [vars(level) for level in self.levels], "growth": self.growth()}


def soak(
    tasks: Sequence[Task],
    seconds: float,
    *,
    rollouts: int = 8,
    engine: str = "native",
    options: dict[str, Any] | None = None,
    on_part: Callable[[str, int], None] = lambda name, total: None,
    on_call: Callable[[ToolResult], None] | None = None,
) -> Soak:
    """Play epochs for that long: `rollouts` rollouts of each task at once, `options` for the executor."""
    # Small bounds, so that they are met in minutes.
    executor = OURS.executor(rollouts, **{"tree": Tree(max_bytes=1 << 20, max_snapshots=8), **(options or {})})
    spec = WorkspaceSpec(engine=engine, separate_stderr=False)
    found = Soak()
    begin = time.perf_counter()
    try:
        while (at := time.perf_counter() - begin) < seconds or not found.levels:
            mark = ToolCall("shell", {"command": f"echo epoch {found.epochs}"})
            first = ToolCall("shell", {"command": f"echo {found.epochs} > /tmp/epoch"})
            on_part(f"{at:.0f} of {seconds:.0f} s, epoch {found.epochs + 1}", 0)
            with ExitStack() as stack:
                groups = []
                for task in tasks:
                    scripts = {name: [mark, first, *script] for name, script in scripts_of(task).items()}
                    prepare = partial(task.prepare, spec)
                    groups.append(
                        stack.enter_context(
                            Group(executor, task.name, prepare, repeat(scripts, rollouts), timeout=task.call_timeout)
                        )
                    )
                play(groups, jobs=sum(map(len, groups)), on_call=on_call)
            found.failures += [f"{p.name}: {p.failure}" for group in groups for p in group.played if p.failure]
            del groups
            found.epochs += 1
            found.levels.append(_look(at, found.epochs, executor.tree))
        found.seconds = time.perf_counter() - begin
        found.calls, found.stats = executor.stats.calls, executor.stats.as_dict()
    finally:
        executor.close()
    return found


def _look(at: float, epoch: int, tree: Tree) -> Level:
    gc.collect()
    me = os.getpid()
    below = meter.descendants(me)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    held = {key: size for pid in (me, *below) for key, size in meter.stores(pid).items()}
    nodes, results, snapshots = tree.size[:3]
    return Level(
        at=at,
        epoch=epoch,
        rss=int(status["VmRSS"].split()[0]) << 10,
        stores=sum(held.values()),
        fds=len(os.listdir("/proc/self/fd")),
        threads=int(status["Threads"]),
        processes=len(below),
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        folders=sum(entry.name.startswith("bunshin") for entry in os.scandir(state_parent())),
        nodes=nodes,
        results=results,
        snapshots=snapshots,
    )
