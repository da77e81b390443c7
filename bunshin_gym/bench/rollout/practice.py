"""Practice: rollouts of shipped tasks as their habits make them, in workspaces where about 200 MB live."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial

from bunshin_gym.bench.rollout.workload import Batch, Lot
from bunshin_gym.errors import TaskError
from bunshin_gym.task import Task, Taskset
from bunshin_gym.workspace import WorkspaceSpec

__all__ = ["batches", "lot"]


def lot(task: Task, rollouts: int, seed: int, engine: str = "native", scale: float = 1.0) -> Lot:
    """That many rollouts of a task, drawn from its habits. Raises TaskError where it has none."""
    if task.habits is None:
        raise TaskError(f"task {task.name!r} has no habits to draw rollouts from")
    paths = [task.habits.path(f"{task.name} {seed} {number}") for number in range(rollouts)]
    spec = task.workspace_spec(WorkspaceSpec(engine=engine, separate_stderr=False))
    return Lot(
        task=task.name,
        names=tuple(f"{task.name} {number + 1}" for number in range(rollouts)),
        scripts=tuple(path.calls for path in paths),
        thinking=tuple(tuple(scale * t for t in path.thinking) for path in paths),
        prepare=partial(task.prepare, spec),
        timeout=task.call_timeout,
        verifier=task.verifier,
    )


def batches(
    *, rollouts: int, seed: int = 0, pattern: str = "", scale: float = 1.0, engine: str = "native"
) -> list[Batch]:
    """A batch for each practice task whose name matches `pattern` (a glob), of one group.

    Raises TaskError where none does, or where what they need is not installed.
    """
    tasks = [task for task in Taskset.load("practice") if not pattern or fnmatchcase(task.name, pattern)]
    if not tasks:
        raise TaskError(f"no practice task is called {pattern!r}")
    from bunshin_gym.envs.practice import _live

    about = tuple(f"{part}: {what}" for part, what in _live.roster().items())
    return [
        Batch(f"{task.name} × {rollouts}", (lot(task, rollouts, seed, engine, scale),), about, busy=True)
        for task in tasks
    ]
