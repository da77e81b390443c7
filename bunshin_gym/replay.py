"""Recorded rollouts, made again: every call of a recorded trajectory runs in a workspace, through the executor.

A task's image is a Debian root plus what its set-up commands write, built once with network. The calls run without
network, each in a fresh shell, as they were recorded; siblings share memory and answers like those of a training step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from bunshin_gym import debian
from bunshin_gym.branch import Branch
from bunshin_gym.executor import Executor
from bunshin_gym.group import Group, play
from bunshin_gym.image import Image
from bunshin_gym.report import Run, Watch
from bunshin_gym.stamp import stamp_of
from bunshin_gym.stats import Stats
from bunshin_gym.tools import ToolResult
from bunshin_gym.traces import Comparison, TraceTask, compare
from bunshin_gym.treefile import TreeFile
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["Disagreement", "TaskReport", "image_of", "replay", "spec_of"]

# From here on two outputs count as alike, and as the same (see traces.similarity).
_ALIKE, _SAME = 0.8, 0.99


@dataclass(frozen=True)
class Disagreement:
    """A call whose exit code is not the expected one."""

    rollout: str
    number: int  # of the call in its rollout, from 1
    command: str
    expected: int | None
    code: int | None
    output: str


@dataclass
class TaskReport:
    """How a task's rollouts went. Counts of calls, unless said otherwise; times in seconds.

    Each `_agree` is out of its `_comparable`: the calls for which the recorded replay itself agrees with the recording.
    """

    task: str
    rollouts: int = 0
    calls: int = 0
    codes_comparable: int = 0
    codes_agree: int = 0
    alike_comparable: int = 0
    alike_agree: int = 0  # the output is much like the recorded one
    same_comparable: int = 0
    same_agree: int = 0  # the output is the recorded one, but for dates, sizes and the like
    setup_seconds: float = 0.0
    wall_seconds: float = 0.0
    tree: Branch = field(default_factory=Branch)
    stats: Stats = field(default_factory=Stats)
    failures: list[str] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)
    run: Run | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        left_out = ("stats", "tree", "disagreements", "run")
        plain = {name: value for name, value in vars(self).items() if name not in left_out}
        return plain | {"stats": self.stats.as_dict(), "disagreements": [vars(d) for d in self.disagreements]}


def image_of(task: TraceTask) -> Image:
    """The image in which the task's calls were recorded. Raises ImageError."""
    address = debian.mirror()
    return Image.build(Image.directory(debian.root()), [debian.with_mirror(c, address) for c in task.setup])


def spec_of(task: TraceTask, engine: str = "native") -> WorkspaceSpec:
    """The workspace in which the task's calls are made again; builds its image where there is none.

    Raises ImageError.
    """
    return WorkspaceSpec(
        image=image_of(task),
        engine=engine,
        capabilities="container",
        separate_stderr=False,
        pids_limit=None,
        call_timeout=task.timeout,
        cwd=task.cwd,
    )


def replay(
    task: TraceTask,
    *,
    rollouts: int | None = None,
    cache: bool = True,
    share: bool = True,
    engine: str = "native",
    jobs: int = 4,
    trees: TreeFile | None = None,
    watch: bool = False,
    on_call: Callable[[ToolResult], None] | None = None,
    on_stats: Callable[[str, Stats], None] = lambda name, stats: None,
) -> TaskReport:
    """Make the task's rollouts (the first `rollouts` of them) again, `jobs` at a time, and compare.

    With `trees` they go on with the call tree that is saved in it, and leave theirs there. With `watch`, the report has
    a `run` for a page. Raises ImageError where the image cannot be built. A rollout that fails is in the report's
    `failures`.
    """
    chosen = task.rollouts[:rollouts]
    report = TaskReport(task.name, rollouts=len(chosen))
    on_stats(task.name, report.stats)
    start = time.perf_counter()
    spec = spec_of(task, engine)
    report.setup_seconds = time.perf_counter() - start
    watched = Watch() if watch else None
    events = watched.events if watched is not None else None
    executor = Executor(cache=cache, share=share, group=len(chosen), stats=report.stats, saved=trees, events=events)
    group = Group(
        executor,
        task.name,
        lambda: Workspace(spec),
        {rollout.name: [task.call(call) for call in rollout.calls] for rollout in chosen},
        timeout=task.timeout,
        stamp=lambda workspace: stamp_of(workspace.spec, (task.name, task.setup)),
    )
    start = time.perf_counter()
    try:
        with group:
            with watched or nullcontext():
                play([group], jobs=jobs, on_call=on_call)
            report.wall_seconds = time.perf_counter() - start
            report.tree = group.tree()
            if watched is not None:
                report.run = Run.of(task.name, report.wall_seconds, [group], report.stats, watched)
        if trees is not None:
            executor.recall.into(trees)
    finally:
        executor.close()
    for rollout, played in zip(chosen, group.played, strict=True):
        if played.failure:
            report.failures.append(f"{rollout.name}: {played.failure}")
        report.calls += len(rollout.calls)
        for number, (call, result) in enumerate(zip(rollout.calls, played.results, strict=False), 1):
            _count(report, rollout.name, number, compare(call, result), result)
    return report


def _count(report: TaskReport, rollout: str, number: int, found: Comparison, result: ToolResult) -> None:
    call = found.call
    theirs, ours = call.replay_similarity or 0.0, found.similarity
    report.alike_comparable += theirs >= _ALIKE
    report.alike_agree += theirs >= _ALIKE and ours >= _ALIKE
    report.same_comparable += theirs >= _SAME
    report.same_agree += theirs >= _SAME and ours >= _SAME
    if not found.comparable:
        return
    report.codes_comparable += 1
    report.codes_agree += found.agrees
    if not found.agrees:
        report.disagreements.append(
            Disagreement(rollout, number, call.command, call.code, found.code, result.output[-400:])
        )
