"""Tasksets played by scripts: the rollouts of a policy that is a fixed list of commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from bunshin_gym.branch import Branch
from bunshin_gym.errors import TaskError
from bunshin_gym.executor import Executor
from bunshin_gym.group import Group, play, repeat
from bunshin_gym.report import Run, Watch
from bunshin_gym.stats import Stats
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolCall, ToolResult
from bunshin_gym.treefile import TreeFile
from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["TasksetReport", "play_taskset", "scripts_of"]


@dataclass
class TasksetReport:
    """How the rollouts of one task went. Seconds."""

    task: str
    rollouts: int
    solved: int
    wall_seconds: float
    tree: Branch
    stats: Stats
    failures: list[str] = field(default_factory=list)
    run: Run | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; without the tree."""
        plain = {name: value for name, value in vars(self).items() if name not in ("stats", "tree", "run")}
        return plain | {"stats": self.stats.as_dict()}


def scripts_of(task: Task) -> dict[str, list[ToolCall]]:
    """A task's scripts as calls of the shell; its solution where it has no others."""
    scripts = dict(task.scripts) or {"solution": task.solution}
    return {
        f"{task.name}: {name}": [ToolCall("shell", {"command": command}) for command in script]
        for name, script in scripts.items()
    }


def play_taskset(
    tasks: Iterable[Task],
    *,
    pattern: str = "",
    rollouts: int = 4,
    cache: bool = True,
    share: bool = True,
    engine: str = "native",
    jobs: int | None = None,
    trees: TreeFile | None = None,
    watch: bool = False,
    on_task: Callable[[str, int], None] = lambda name, calls: None,
    on_stats: Callable[[str, Stats], None] = lambda name, stats: None,
    on_call: Callable[[ToolResult], None] | None = None,
) -> list[TasksetReport]:
    """Play `rollouts` rollouts of each task whose name matches `pattern` (a glob), task after task.

    With `trees` they go on with the call trees that are saved in it, and leave theirs there. With `watch`, each report
    has a `run` for a page. `on_stats` gets each task's name and its statistics when it begins; they go on counting.
    Raises TaskError where no name matches. What goes wrong in a rollout is in its task's `failures`.
    """
    chosen = [task for task in tasks if not pattern or fnmatchcase(task.name, pattern)]
    if not chosen:
        raise TaskError(f"no task is called {pattern!r}")
    spec = WorkspaceSpec(engine=engine, separate_stderr=False)
    reports = []
    for task in chosen:
        scripts = repeat(scripts_of(task), rollouts)
        on_task(task.name, sum(map(len, scripts.values())))
        watched = Watch() if watch else None
        events = watched.events if watched is not None else None
        executor = Executor(cache=cache, share=share, group=rollouts, saved=trees, events=events)
        on_stats(task.name, executor.stats)
        group = Group(
            executor,
            task.name,
            partial(task.prepare, spec),
            scripts,
            timeout=task.call_timeout,
            verifier=task.verifier,
            stamp=task.stamp,
        )
        start = time.perf_counter()
        try:
            with group:
                with watched or nullcontext():
                    play([group], jobs=jobs, on_call=on_call)
                seconds = time.perf_counter() - start
                tree = group.tree()
                run = Run.of(task.name, seconds, [group], executor.stats, watched) if watched is not None else None
            if trees is not None:
                executor.recall.into(trees)
        finally:
            executor.close()
        reports.append(
            TasksetReport(
                task.name,
                len(group),
                sum(played.reward == 1.0 for played in group.played),
                seconds,
                tree,
                executor.stats,
                [f"{played.name}: {played.failure}" for played in group.played if played.failure],
                run,
            )
        )
    return reports
