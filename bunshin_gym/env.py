"""WorkspaceEnv: an environment whose actions are text and whose state is a live workspace.

The environment picks a task, starts episodes, keeps states and draws. What a step means is in `episode`; how calls are
run is in `executor`. Nothing starts before `reset()`.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

import gymnasium as gym
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from numpy.typing import NDArray

from bunshin_gym import render
from bunshin_gym.actions import MAX_ACTION, SHELL_INTERFACE, TOOLS_INTERFACE, Interface
from bunshin_gym.episode import MAX_OBSERVATION, Episode, Progress, Transition
from bunshin_gym.executor import Executor, Place
from bunshin_gym.rollout import Rollout
from bunshin_gym.spaces import UnicodeText
from bunshin_gym.stats import Stats
from bunshin_gym.task import PLAYGROUND, Task, Taskset
from bunshin_gym.worker import Worker
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["EnvState", "ShellEnv", "ToolsEnv", "WorkspaceEnv", "make_executor", "make_spec", "tasks_of"]

_SPEC_FIELDS = {f.name for f in fields(WorkspaceSpec)} - {"engine", "call_timeout"}
# What a user may say to the executor through an environment, beside `cache` and `share`.
_EXECUTOR_OPTIONS = set(inspect.signature(Executor).parameters) - {"cache", "share", "group", "tree", "stats", "saved"}
# Observations are text, so what is kept of a stream is what fits into one; and stderr goes where stdout goes, since a
# policy reads one text, in the order in which it was written.
_SPEC_DEFAULTS: dict[str, Any] = {"separate_stderr": False, "output_limit": 1 << 16}


def tasks_of(
    task: str | Task | None, taskset: str | Taskset | Iterable[Task] | None, playground: Task = PLAYGROUND
) -> Taskset:
    """What `task` and `taskset` stand for: a task of a set, one that is shipped, a whole set, or the playground."""
    if isinstance(task, Task):
        return Taskset([task], task.name)
    if isinstance(taskset, str):
        taskset = Taskset.load(taskset)
    if taskset is not None and not isinstance(taskset, Taskset):
        taskset = Taskset(taskset)
    if isinstance(task, str):
        return Taskset([taskset[task]], task) if taskset is not None else Taskset.load(task)
    return taskset if taskset is not None else Taskset([playground], playground.name)


def make_executor(cache: bool, share: bool, group: int, options: Mapping[str, Any]) -> tuple[Executor, dict[str, Any]]:
    """An executor by those of the options that are its own, and the other options. Raises as the executor does."""
    own = {name: value for name, value in options.items() if name in _EXECUTOR_OPTIONS}
    rest = {name: value for name, value in options.items() if name not in own and name != "tree"}
    return Executor(cache=cache, share=share, group=group, saved=options.get("tree"), **own), rest


def make_spec(owner: str, engine: str, fields: Mapping[str, Any]) -> WorkspaceSpec:
    """The spec of workspaces whose observations are text. Raises TypeError for what is no field of it, and as it does.

    `owner` is the class that got the fields as keyword arguments.
    """
    for name in fields:
        if name not in _SPEC_FIELDS:
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}")
    return WorkspaceSpec(engine=engine, **(_SPEC_DEFAULTS | dict(fields)))


@dataclass(frozen=True, eq=False)
class EnvState:
    """A state of an environment to come back to: opaque, reusable, let go of with `close()` or when it is collected."""

    task: Task
    progress: Progress
    place: Place
    random: dict[str, Any]

    def close(self) -> None:
        """Let go of what it holds. Idempotent; it cannot be restored afterwards."""
        self.place.release()


class WorkspaceEnv(gym.Env[Any, str]):
    """Text in, text out.

    Args:
        task: a Task, or the name of one of `taskset` or of the shipped ones. None: drawn from the taskset at each reset
            by the environment's own random numbers; without a taskset, an empty playground.
        taskset: a Taskset, tasks, or the name of a shipped set ("basic").
        engine: what makes workspaces: "native", "dummy".
        cache: answer calls that were made before from the same state without running them.
        share: fork workspaces from one prepared one instead of preparing each anew.
        render_mode: "ansi" (the transcript) or "rgb_array" (a drawn terminal, uint8, 400 x 640 x 3).
        step_timeout: seconds after which a step is given up and the episode truncated, whatever it waits for. None:
            only the task's own limit on each call holds.
        tree: the file of a call tree that `save_tree` wrote, to go on with; nothing where there is no such file.
        options: further arguments of the Executor, e.g. `speculator`, and fields of the WorkspaceSpec, e.g. `image`,
            `memory_limit`, `network`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # type: ignore[misc]
    interface: ClassVar[Interface] = SHELL_INTERFACE
    playground: ClassVar[Task] = PLAYGROUND

    def __init__(
        self,
        task: str | Task | None = None,
        taskset: str | Taskset | Iterable[Task] | None = None,
        engine: str = "native",
        cache: bool = True,
        share: bool = True,
        render_mode: Literal["ansi", "rgb_array"] | None = None,
        step_timeout: float | None = None,
        *,
        _executor: Executor | None = None,
        **options: Any,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']} or None, not {render_mode!r}")
        if step_timeout is not None and not step_timeout > 0:
            raise ValueError(f"step_timeout must be a positive number of seconds or None, not {step_timeout!r}")
        if _executor is None:
            _executor, spec = make_executor(cache, share, 1, options)
        else:
            spec = options
        self.tasks = tasks_of(task, taskset, self.playground)
        self.workspace_spec = make_spec(type(self).__name__, engine, spec)
        self.render_mode = render_mode
        self.step_timeout = step_timeout
        self.action_space = UnicodeText(MAX_ACTION, samples=self.interface.samples)
        self.observation_space = UnicodeText(MAX_OBSERVATION)
        self._kwargs = {"engine": engine, "render_mode": render_mode, "step_timeout": step_timeout, **spec}
        self._executor = _executor
        self._executor.acquire()
        self._episode: Episode | None = None
        self._worker: Worker | None = None
        self._closed = False

    # -- the Gymnasium interface

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. `options={"task": name}` picks the task; otherwise it is drawn.

        Raises EngineUnavailable, ImageError, TaskError or WorkspaceError where the task's workspace cannot be prepared.
        """
        self._check_open("reset")
        super().reset(seed=seed)
        task = self._pick(dict(options or {}))
        if self._episode is not None:
            self._episode.close()
            self._episode = None
        rollout = self._open(task)
        self._episode = self._make_episode(task, rollout)
        return task.instruction, {"task": task.name}

    def prepare(self, task: str) -> None:
        """Prepare the workspace of a task of the taskset, so that `reset` need not; from any thread.

        Nothing where it is prepared already. Raises as `reset` does, and at once where the memory budget has no room.
        """
        chosen = self.tasks[task]
        self._open(chosen, patient=False).close()

    def step(self, action: str) -> Transition:
        """One move. What goes wrong is in the observation and in `info["failure_kind"]`; only misuse raises.

        Returns the observation, the reward in [0, 1], terminated, truncated, and info with `exit_code` (-1: there is
        none), `exit_reason`, `output_truncated`, `failure_kind`, `call_valid` and `timed_out`.
        """
        episode = self._running("step")
        if self.step_timeout is None:
            return episode.step(action)
        self._worker = self._worker or Worker("bunshin-step")
        future = self._worker.submit(lambda: episode.step(action))
        wait([future], self.step_timeout)
        if future.done():
            return future.result()
        self._worker.stop()
        self._worker = None
        return self.give_up(action)

    def hint(self, text: str) -> None:
        """What the policy has written of its next action so far, for a speculator that can make use of it."""
        self._running("take a hint").hint(text)

    def give_up(self, action: object) -> Transition:
        """End the episode because the step that is under way in another thread is overdue."""
        self._episode, transition = self._running("give up").abandon(action)
        return transition

    def render(self) -> str | NDArray[np.uint8] | None:
        """The transcript ("ansi"), or the terminal as a picture ("rgb_array")."""
        transcript = self._episode.progress.transcript if self._episode is not None else ()
        if self.render_mode == "ansi":
            return render.as_text(transcript)
        if self.render_mode == "rgb_array":
            return render.as_picture(transcript)
        gym.logger.warn("render() draws nothing: make the environment with render_mode='ansi' or 'rgb_array'")
        return None

    def close(self) -> None:
        """End the episode and remove every workspace and snapshot of it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._worker is not None:
            self._worker.stop()
        if self._episode is not None:
            self._episode.close()
        self._executor.release()

    # -- states

    def clone_state(self) -> EnvState:
        """The present state, workspace and random numbers included, to `restore_state` any number of times.

        Raises ForkError where the workspace holds something that cannot be forked.
        """
        episode = self._running("clone the state")
        random = dict(copy.deepcopy(self.np_random.bit_generator.state))
        return EnvState(episode.task, episode.progress, episode.keep(), random)

    def restore_state(self, state: EnvState) -> None:
        """Go back to a state of this environment or of a fork of it. Raises ValueError for others, and closed ones."""
        self._check_open("restore a state")
        rollout = self._executor.resume(state.place)
        if self._episode is not None:
            self._episode.close()
        self._episode = self._make_episode(state.task, rollout, state.progress)
        self.np_random.bit_generator.state = copy.deepcopy(state.random)

    def fork(self, n: int) -> list[Self]:
        """n environments in this one's state, independent of it and of each other; each is closed by whoever has it."""
        state = self.clone_state()
        try:
            return [self._forked(state) for _ in range(n)]
        finally:
            state.close()

    def save_tree(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the call tree to a file, for the option `tree` of another process; None: to the one it was given.

        Raises TreeFileError.
        """
        self._check_open("save the call tree")
        self._executor.save(path)

    # -- looking

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI function schemas."""
        return self.interface.openai()

    @property
    def stats(self) -> Stats:
        """What was saved, and what it cost; shared with forks of this environment."""
        return self._executor.stats

    # -- helpers

    def _forked(self, state: EnvState) -> Self:
        child = type(self)(taskset=self.tasks, _executor=self._executor, **self._kwargs)
        child.spec = self.spec
        child.restore_state(state)
        return child

    def _open(self, task: Task, *, patient: bool = True) -> Rollout:
        return self._executor.open(task.name, lambda: self._prepare(task), task.stamp, patient)

    def _prepare(self, task: Task) -> Workspace:
        return task.prepare(self.workspace_spec)

    def _make_episode(self, task: Task, rollout: Rollout, progress: Progress | None = None) -> Episode:
        return Episode(self._executor, self.interface, task, rollout, progress, transcribe=self.render_mode is not None)

    def _pick(self, options: dict[str, Any]) -> Task:
        name = options.get("task")
        if isinstance(name, Task):
            name = name.name
        if name is not None:
            return self.tasks[str(name)]
        return self.tasks[int(self.np_random.integers(len(self.tasks)))] if len(self.tasks) > 1 else self.tasks[0]

    def _running(self, step: str) -> Episode:
        self._check_open(step)
        if self._episode is None:
            raise ResetNeeded(f"cannot {step}: call reset() first")
        return self._episode

    def _check_open(self, step: str) -> None:
        if self._closed:
            raise ClosedEnvironmentError(f"cannot {step}: the environment is closed")


class ShellEnv(WorkspaceEnv):
    """`bunshin/Shell-v0`: an action is bash source; `submit` ends the episode."""

    interface = SHELL_INTERFACE


class ToolsEnv(WorkspaceEnv):
    """`bunshin/Tools-v0`: an action is a JSON object `{"tool": name, "args": {...}}`; the tool `submit` is the end."""

    interface = TOOLS_INTERFACE
