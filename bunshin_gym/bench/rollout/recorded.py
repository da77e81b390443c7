"""Traces: the groups of a recording, call by call, with their recorded thinking times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bunshin_gym import traces
from bunshin_gym.bench.rollout.workload import Batch, Lot
from bunshin_gym.errors import TaskError
from bunshin_gym.replay import spec_of
from bunshin_gym.traces import TraceTask
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["batches", "is_group"]


def lot(task: TraceTask, spec: WorkspaceSpec, scale: float) -> Lot:
    """A recorded group. Where a thinking time is not recorded (a rollout's first), the rollout's median stands in."""
    thinking = []
    for rollout in task.rollouts:
        known = [call.thinking for call in rollout.calls if call.thinking is not None]
        usual = statistics.median(known) if known else 0.0
        thinking.append(tuple(scale * (usual if call.thinking is None else call.thinking) for call in rollout.calls))
    return Lot(
        task=task.name,
        names=tuple(rollout.name for rollout in task.rollouts),
        scripts=tuple(tuple(task.call(call) for call in rollout.calls) for rollout in task.rollouts),
        thinking=tuple(thinking),
        prepare=lambda: Workspace(spec),
        timeout=task.timeout,
    )


def batches(
    tasks: Path,
    trajectories: Path,
    *,
    pattern: str = "",
    scale: float = 1.0,
    engine: str = "native",
    rollouts: int | None = None,
    apart: bool = False,
    on_image: Callable[[str, int], None] = lambda name, total: None,
) -> list[Batch]:
    """The recorded groups that are groups (two rollouts or more, thinking times recorded), a batch a family.

    A family is what stands before the slash of a task's name. With `apart` each task is a batch of its own. Images are
    built here, before anything is measured. Raises TaskError and ImageError.
    """
    chosen = [task for task in traces.load(tasks, trajectories, pattern) if is_group(task)]
    if not chosen:
        raise TaskError(
            f"{tasks} has no groups with recorded thinking times" + (f" called {pattern!r}" if pattern else "")
        )
    families: dict[str, list[Lot]] = {}
    for task in chosen:
        on_image(f"image of {task.name}", 0)
        name = task.name if apart else task.name.partition("/")[0]
        cut = replace(task, rollouts=task.rollouts[:rollouts])
        families.setdefault(name, []).append(lot(cut, spec_of(task, engine), scale))
    about = (f"recorded in {trajectories.name}, thinking times {scale:g} times as recorded",)
    return [Batch(name, tuple(lots), about) for name, lots in families.items()]


def is_group(task: TraceTask) -> bool:
    """Whether its rollouts are independent of each other and have thinking times."""
    timed = sum(call.thinking is not None for rollout in task.rollouts for call in rollout.calls)
    return len(task.rollouts) > 1 and 2 * timed > _calls(task.rollouts)


def _calls(rollouts: Sequence[traces.TraceRollout]) -> int:
    return sum(len(rollout.calls) for rollout in rollouts)
