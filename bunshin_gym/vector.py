"""BunshinVectorEnv: n environments, one executor.

The n environments of a task are forks of one prepared workspace, and share what their calls gave. Each has a worker
thread, so that their steps run at the same time; no other processes are needed. It does what a SyncVectorEnv of the
single environments does, step for step, and beyond that:
- a step that passes its deadline truncates its own environment. What it gives later goes nowhere: each step has a
  future of its own, and nobody holds that one any more;
- a workspace that is lost truncates its own environment; no step raises for one of them;
- `close` comes back in time whatever the workers do;
- `reset` takes options per environment, also together with a mask.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bunshin_gym.env import EnvState, ShellEnv, ToolsEnv, WorkspaceEnv, tasks_of
from bunshin_gym.episode import Transition
from bunshin_gym.executor import Executor
from bunshin_gym.stats import Stats
from bunshin_gym.task import Task, Taskset
from bunshin_gym.worker import Worker

__all__ = ["BunshinVectorEnv", "Slot", "ToolsVectorEnv"]

T = TypeVar("T")
Observations = Any  # a tuple of text, but for environments whose observations can be batched
Batch = tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]

_log = logging.getLogger("bunshin_gym")


class Slot:
    """One of the n: an environment, its worker, what it showed last, and whether its next step is a reset."""

    def __init__(self, make: Callable[[], WorkspaceEnv], number: int) -> None:
        self._make = make
        self.number = number
        self.env = make()
        self.worker = Worker(f"bunshin-env-{number}")
        self.steps = 0
        self.observation: Any = ""
        self.fresh = False  # whether an episode has been begun
        self.over = False  # whether the last step ended it
        self.broken = ""  # why the last reset failed, if it did

    def replace(self) -> None:
        """A new environment and a new worker in place of ones that are stuck; its random numbers go on."""
        old, worker = self.env, self.worker
        worker.stop()
        self.env = self._make()
        if old._np_random is not None:
            self.env.np_random = copy.deepcopy(old.np_random)
        self.worker = Worker(f"bunshin-env-{self.number}")
        _start_closing(old.close, "bunshin-close")

    def begun(self, observation: Any) -> None:
        self.observation, self.fresh, self.over, self.broken, self.steps = observation, True, False, "", 0


class BunshinVectorEnv(VectorEnv[Observations, Sequence[str], NDArray[Any]]):
    """n environments of one task or taskset.

    Args:
        num_envs: how many.
        max_episode_steps: truncates after so many steps, as Gymnasium's TimeLimit does, whatever the tasks' own limits.
        autoreset_mode: an AutoresetMode, or its value: "NextStep", "SameStep", "Disabled".
        step_timeout: seconds a step, or an automatic reset, may take before its environment is truncated. None: no
            bound.
        task, taskset, engine, cache, share, render_mode, spec: as for `WorkspaceEnv`.
    """

    env_class: ClassVar[type[WorkspaceEnv]] = ShellEnv
    caches: ClassVar[bool] = True  # whether calls may be answered from a cache

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        task: str | Task | None = None,
        taskset: str | Taskset | Iterable[Task] | None = None,
        engine: str = "native",
        cache: bool = True,
        share: bool = True,
        render_mode: Any = None,
        step_timeout: float | None = None,
        **spec: Any,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, not {num_envs}")
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps must be at least 1, not {max_episode_steps}")
        if step_timeout is not None and not step_timeout > 0:
            raise ValueError(f"step_timeout must be a positive number of seconds or None, not {step_timeout!r}")
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.step_timeout = step_timeout
        self.render_mode = render_mode
        self.metadata = self.env_class.metadata | {"autoreset_mode": self.autoreset_mode}
        self._executor = Executor(cache=cache and self.caches, share=share, group=num_envs)
        self._executor.acquire()
        tasks = tasks_of(task, taskset, self.env_class.playground)

        def make() -> WorkspaceEnv:
            return self.env_class(
                taskset=tasks, engine=engine, render_mode=render_mode, _executor=self._executor, **spec
            )

        self._slots = [Slot(make, i) for i in range(num_envs)]
        self.single_action_space = self._slots[0].env.action_space
        self.single_observation_space = self._slots[0].env.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._sent: list[tuple[Future[Any], bool, str]] | None = None  # of each slot: future, is a reset, action
        self._deadline: float | None = None

    # -- reset

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode in every environment, or in those of `options["reset_mask"]` (bool, shape (num_envs,)).

        `seed`: one number (environment i gets seed + i), or one for each. `options` go to each environment; a list of
        them, or `options["options"]`, holds those of each; `options["task"]` may be one name or a list. Raises what a
        single reset raises, once all have ended.
        """
        self._check_open("reset")
        if self._sent is not None:
            raise ResetNeeded("cannot reset: steps have been sent; recv() them first")
        seeds = _each_seed(seed, self.num_envs)
        mask, each = _each_options(options, self.num_envs)
        futures = {
            i: slot.worker.submit(partial(slot.env.reset, seed=seeds[i], options=each[i]))
            for i, slot in enumerate(self._slots)
            if mask[i]
        }
        for i in futures:
            self._slots[i].fresh = False
        errors: list[BaseException] = []
        infos: dict[str, Any] = {}
        for i, future in futures.items():
            try:
                observation, info = future.result()
            except Exception as error:
                errors.append(error)
                continue
            self._slots[i].begun(observation)
            infos = self._add_info(infos, info, i)
        if errors:
            raise errors[0]
        return self._batch([slot.observation for slot in self._slots]), infos

    # -- step

    def step(self, actions: Sequence[str]) -> Batch:
        """One step in every environment, all at the same time; what each gives is as in the single environment."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Sequence[str]) -> None:
        """Begin a step in every environment; `recv` gets what it gives."""
        self._check_open("step")
        if self._sent is not None:
            raise RuntimeError("cannot send: the last steps have not been received; call recv() first")
        actions = list(actions)
        if len(actions) != self.num_envs:
            raise ValueError(f"there must be one action for each of {self.num_envs} environments, not {len(actions)}")
        if not all(slot.fresh or slot.broken for slot in self._slots):
            raise ResetNeeded("cannot step: call reset() first")
        over = [slot.number for slot in self._slots if slot.over]
        if over and self.autoreset_mode is AutoresetMode.DISABLED:
            raise ResetNeeded(
                f"cannot step: the episodes of environments {over} are over; reset them with a reset_mask"
            )
        self._deadline = None if self.step_timeout is None else time.monotonic() + self.step_timeout
        self._sent = [
            self._begin_reset(slot, action) if slot.over else self._begin_step(slot, action)
            for slot, action in zip(self._slots, actions, strict=True)
        ]

    def recv(self) -> Batch:
        """What the steps sent last gave. Waits for all of them, but not beyond `step_timeout`."""
        if self._sent is None:
            raise RuntimeError("cannot receive: nothing was sent; call send() first")
        sent, self._sent = self._sent, None
        transitions = [self._finish(slot, *item) for slot, item in zip(self._slots, sent, strict=True)]
        finals: dict[int, Transition] = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            finals = {i: t for i, t in enumerate(transitions) if t.terminated or t.truncated}
            self._deadline = None if self.step_timeout is None else time.monotonic() + self.step_timeout
            resets = {i: self._begin_reset(self._slots[i], "") for i in finals}
            for i, item in resets.items():
                begun = self._finish(self._slots[i], *item)
                transitions[i] = finals[i]._replace(observation=begun.observation, info=begun.info)
        infos: dict[str, Any] = {}
        for i, transition in enumerate(transitions):
            if i in finals:
                final = {"final_obs": finals[i].observation, "final_info": finals[i].info}
                infos = self._add_info(infos, final, i)
            infos = self._add_info(infos, transition.info, i)
        return (
            self._batch([t.observation for t in transitions]),
            np.array([t.reward for t in transitions], dtype=np.float64),
            np.array([t.terminated for t in transitions], dtype=np.bool_),
            np.array([t.truncated for t in transitions], dtype=np.bool_),
            infos,
        )

    def _batch(self, observations: list[Any]) -> Any:
        return tuple(observations)

    def _begin_step(self, slot: Slot, action: str) -> tuple[Future[Any], bool, str]:
        if slot.broken:
            failed: Future[Any] = Future()
            failed.set_result(_failed_reset(slot.broken)._replace(truncated=True))
            return failed, False, action
        return slot.worker.submit(partial(slot.env.step, action)), False, action

    def _begin_reset(self, slot: Slot, action: str) -> tuple[Future[Any], bool, str]:
        return slot.worker.submit(slot.env.reset), True, action

    def _finish(self, slot: Slot, future: Future[Any], is_reset: bool, action: str) -> Transition:
        """What the step or reset of one slot gave, or what it gives because it is overdue or failed."""
        wait([future], None if self._deadline is None else max(0.0, self._deadline - time.monotonic()))
        if not future.done():
            transition = self._overdue(slot, is_reset, action)
        elif (error := future.exception()) is not None:
            transition = self._break(slot, f"{type(error).__name__}: {error}") if is_reset else self._crash(slot, error)
        elif is_reset:
            observation, info = future.result()
            slot.begun(observation)
            return Transition(observation, 0.0, False, False, info)
        else:
            transition = future.result()
        if not is_reset:
            slot.steps += 1
            if self.max_episode_steps is not None and slot.steps >= self.max_episode_steps:
                transition = transition._replace(truncated=True)
            slot.over = transition.terminated or transition.truncated
        slot.observation = transition.observation
        return transition

    def _overdue(self, slot: Slot, is_reset: bool, action: str) -> Transition:
        if is_reset:
            slot.replace()
            return self._break(slot, "the reset did not end in time")
        transition = slot.env.give_up(action)
        slot.worker.stop()
        slot.worker = Worker(f"bunshin-env-{slot.number}")
        return transition

    def _crash(self, slot: Slot, error: BaseException) -> Transition:
        """A step raised: a fault of the program, since a workspace's troubles are results. The others go on."""
        _log.error("environment %d failed and is made anew", slot.number, exc_info=error)
        slot.replace()
        return _failure("[the environment failed: the episode ends]", "internal_error")._replace(truncated=True)

    def _break(self, slot: Slot, why: str) -> Transition:
        """An automatic reset failed: the next step ends at once, and the one after it tries again."""
        _log.warning("environment %d could not be reset: %s", slot.number, why)
        slot.broken, slot.over, slot.fresh, slot.steps = why, False, False, 0
        return _failed_reset(why)

    # -- looking

    def render(self) -> tuple[Any, ...]:
        """A frame of each environment."""
        return tuple(slot.env.render() for slot in self._slots)

    @property
    def envs(self) -> tuple[WorkspaceEnv, ...]:
        """The single environments, for looking at; step them through this one."""
        return tuple(slot.env for slot in self._slots)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or get an attribute."""
        values = [getattr(env, name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment: to one value, or to one for each (a list or tuple)."""
        each = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"there must be one value for each of {self.num_envs} environments, not {len(each)}")
        for env, value in zip(self.envs, each, strict=True):
            setattr(env, name, value)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI function schemas."""
        return self.env_class.interface.openai()

    @property
    def stats(self) -> Stats:
        """What was saved, and what it cost, over all environments."""
        return self._executor.stats

    @property
    def np_random_seed(self) -> Any:
        """The seed of each environment's random numbers."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """Each environment's random numbers."""
        return self.get_attr("np_random")

    # -- states

    def clone_state(self) -> list[EnvState]:
        """The state of each environment; those are restored together, or one by one in single environments' forks."""
        self._check_idle("clone the state")
        return [slot.env.clone_state() for slot in self._slots]

    def restore_state(self, states: Sequence[EnvState]) -> None:
        """Put environment i into `states[i]`; any states of this vector environment do, also n times the same one."""
        self._check_idle("restore a state")
        if len(states) != self.num_envs:
            raise ValueError(f"there must be one state for each of {self.num_envs} environments, not {len(states)}")
        for slot, state in zip(self._slots, states, strict=True):
            slot.env.restore_state(state)
            slot.begun(slot.observation)
            slot.steps, slot.over = state.progress.steps, state.progress.over

    # -- the end

    def close_extras(self, timeout: float | None = 10.0, **kwargs: Any) -> None:
        """Close every environment; waits at most `timeout` seconds (None: 10) and leaves the rest to the workers."""
        if not hasattr(self, "_slots"):
            return  # its making failed, and some versions of Gymnasium close what is collected
        ends = time.monotonic() + (10.0 if timeout is None else timeout)
        self._sent = None
        closers = []
        for slot in self._slots:
            slot.worker.stop()
            closers.append(_start_closing(slot.env.close, f"bunshin-close-{slot.number}"))
        done = [closer.join(max(0.0, ends - time.monotonic())) for closer in closers]
        last = _start_closing(self._executor.release, "bunshin-close")
        done.append(last.join(max(0.1, ends - time.monotonic())))
        done += [slot.worker.join(max(0.0, ends - time.monotonic())) for slot in self._slots]
        if not all(done):
            _log.warning("close() did not wait for %d of its threads any longer", done.count(False))

    def _check_open(self, step: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"cannot {step}: the environments are closed")

    def _check_idle(self, step: str) -> None:
        self._check_open(step)
        if self._sent is not None:
            raise RuntimeError(f"cannot {step}: steps have been sent; recv() them first")


class ToolsVectorEnv(BunshinVectorEnv):
    """The vector environment of `bunshin/Tools-v0`."""

    env_class = ToolsEnv


def _failed_reset(why: str) -> Transition:
    return _failure(f"[the environment could not be reset: {why}]", "reset_failed")


def _failure(text: str, kind: str) -> Transition:
    info = {
        "exit_code": -1,
        "exit_reason": "not_run",
        "output_truncated": False,
        "failure_kind": kind,
        "call_valid": True,
        "timed_out": False,
    }
    return Transition(text, 0.0, False, False, info)


def _start_closing(close: Callable[[], None], name: str) -> Worker:
    worker = Worker(name)
    worker.submit(close)
    worker.stop()
    return worker


def _each_seed(seed: int | Sequence[int | None] | None, n: int) -> list[int | None]:
    if seed is None:
        return [None] * n
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + i for i in range(n)]
    if len(seed) != n:
        raise ValueError(f"there must be one seed for each of {n} environments, not {len(seed)}")
    return [None if one is None else int(one) for one in seed]


def _each_options(options: Any, n: int) -> tuple[NDArray[np.bool_], list[dict[str, Any]]]:
    """The mask, and the options of each environment. Leaves what the caller gave as it was."""
    mask = np.ones(n, dtype=np.bool_)
    if options is None:
        return mask, [{} for _ in range(n)]
    if not isinstance(options, Mapping):
        options = {"options": options}
    common = dict(options)
    if "reset_mask" in common:
        mask = common.pop("reset_mask")
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError("options['reset_mask'] must be a numpy array of dtype bool")
        if mask.shape != (n,) or not mask.any():
            raise ValueError(f"options['reset_mask'] must have shape ({n},) and at least one True, not {mask}")
    own = common.pop("options", None)
    own = [None] * n if own is None else list(own)
    tasks = common.pop("task", None)
    tasks = list(tasks) if isinstance(tasks, (list, tuple, np.ndarray)) else [tasks] * n
    for name, values in (("options", own), ("task", tasks)):
        if len(values) != n:
            raise ValueError(f"options[{name!r}] must have one entry for each of {n} environments, not {len(values)}")
    each = [
        common | ({} if task is None else {"task": task}) | dict(mine or {})
        for task, mine in zip(tasks, own, strict=True)
    ]
    return mask, each
