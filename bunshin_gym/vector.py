"""BunshinVectorEnv: n environments, one executor.

The n environments of a task are forks of one prepared workspace, and share what their calls gave. Each has a worker
thread, so that their steps run at the same time; no other processes are needed. It does what a SyncVectorEnv of the
single environments does, step for step, and beyond that:
- a step that passes its deadline truncates its own environment. What it gives later goes nowhere: each step has a
  future of its own, and nobody holds that one any more;
- a workspace that is lost truncates its own environment; no step raises for one of them;
- `send` and `recv` let the environments go out of step: each gets its next action when its last result is there;
- groups: `group_size` consecutive environments play the same tasks, each task once an epoch;
- `close` comes back in time whatever the workers do;
- `reset` takes options per environment, also together with a mask.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bunshin_gym.curriculum import Curriculum
from bunshin_gym.env import EnvState, ShellEnv, ToolsEnv, WorkspaceEnv, make_executor, tasks_of
from bunshin_gym.episode import Transition
from bunshin_gym.slot import (
    Landed,
    Sent,
    Slot,
    check_arguments,
    failed_reset,
    failure,
    ids_of,
    infos_of,
    numbers_of,
    options_of_each,
    seeds_of_each,
    start_closing,
)
from bunshin_gym.stats import Stats
from bunshin_gym.task import Task, Taskset
from bunshin_gym.templates import Templates
from bunshin_gym.worker import Worker

__all__ = ["BunshinVectorEnv", "ToolsVectorEnv"]

Observations = Any  # a tuple of text, but for environments whose observations can be batched
Batch = tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]

_log = logging.getLogger("bunshin_gym")


class BunshinVectorEnv(VectorEnv[Observations, Sequence[str], NDArray[Any]]):
    """n environments of one task or taskset.

    Args:
        num_envs: how many.
        max_episode_steps: truncates after so many steps, as Gymnasium's TimeLimit does, whatever the tasks' own limits.
        autoreset_mode: an AutoresetMode, or its value: "NextStep", "SameStep", "Disabled".
        step_timeout: seconds a step, or an automatic reset, may take before its environment is truncated. None: no
            bound.
        group_size: how many consecutive environments are a group. Environment i is of group i // group_size; the
            members of a group play the same tasks in the same order, every task of the taskset once an epoch. Every
            info then has `task`, `group`, `group_id` (the number of the draw: one task for one group, once; each
            member plays it in one episode) and `epoch`. A member whose episode is over goes on to its group's next
            draw without waiting for the others. None: each environment draws its tasks by itself.
        prepare_ahead: for how many of the next draws the workspaces are prepared in the background. None: for one
            round of every group.
        task, taskset, engine, cache, share, render_mode, tree, options: as for `WorkspaceEnv`.
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
        group_size: int | None = None,
        prepare_ahead: int | None = None,
        **options: Any,
    ) -> None:
        check_arguments(num_envs, max_episode_steps, step_timeout, group_size, prepare_ahead)
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.step_timeout = step_timeout
        self.group_size = group_size
        self.prepare_ahead = (num_envs // group_size if prepare_ahead is None else prepare_ahead) if group_size else 0
        self.render_mode = render_mode
        self.metadata = self.env_class.metadata | {"autoreset_mode": self.autoreset_mode}
        self._executor, spec = make_executor(cache and self.caches, share, group_size or num_envs, options)
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
        self._sent: dict[int, Sent] = {}  # what is under way, by environment
        self._arrived: queue.SimpleQueue[Sent] = queue.SimpleQueue()  # what has ended, in that order
        self._landed: list[Landed] = []  # what has not been received
        self._whole = False  # whether all of it was sent at once
        self._curriculum: Curriculum | None = None
        self._templates: Templates | None = None
        if group_size is not None:
            self._curriculum = Curriculum(tasks.names, num_envs // group_size, group_size)
            if share and self.prepare_ahead:
                self._templates = Templates(self._slots[0].env.prepare)

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

        With groups: a seed for all begins the epochs anew, in the order it gives (of several seeds, the first). A whole
        group begins its next draw together; of a group that is reset in part, each begins its own next draw. A task
        named in the options is played in place of the draw's own, and must be the same for the whole group.
        """
        self._check_open("reset")
        seeds = seeds_of_each(seed, self.num_envs)
        mask, each = options_of_each(options, self.num_envs)
        if busy := [i for i in range(self.num_envs) if mask[i] and self._is_out(i)]:
            raise ResetNeeded(f"cannot reset: steps have been sent to environments {busy}; recv() them first")
        if self._curriculum is not None:
            for i, draw in self._curriculum.deal(seeds, mask, [one.get("task") for one in each]).items():
                self._slots[i].draw = draw
                each[i] = {"task": draw.task} | each[i]
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
            infos = self._add_info(infos, self._tell(self._slots[i], info), i)
        self._look_ahead()
        if errors:
            raise errors[0]
        return self._batch([slot.observation for slot in self._slots]), infos

    def _look_ahead(self) -> None:
        if self._curriculum is not None and self._templates is not None:
            self._templates.want(self._curriculum.upcoming(self.prepare_ahead))

    def _tell(self, slot: Slot, info: dict[str, Any]) -> dict[str, Any]:
        """The info of one environment, and what its group is at."""
        return info if slot.draw is None else slot.draw.info | info

    # -- step

    def step(self, actions: Sequence[str]) -> Batch:
        """One step in every environment, all at the same time; what each gives is as in the single environment."""
        self.send(actions)
        return self.recv()

    def send(self, actions: Sequence[str], ids: Sequence[int] | NDArray[np.integer[Any]] | None = None) -> None:
        """Begin a step in every environment, or in those of `ids` (one action for each); `recv` gets what they give.

        An environment that has been sent a step takes the next once what it gave has been received. Raises RuntimeError
        otherwise, ResetNeeded where an episode has to be begun first, and sends nothing then.
        """
        self._check_open("step")
        numbers = list(range(self.num_envs)) if ids is None else numbers_of(ids, self.num_envs)
        if busy := [i for i in numbers if self._is_out(i)]:
            which = "the last steps have" if ids is None else f"the last steps of environments {busy} have"
            raise RuntimeError(f"cannot send: {which} not been received; call recv() first")
        if isinstance(actions, (str, bytes)):
            raise TypeError(f"actions must be a sequence, one for each environment, not a single text: {actions!r:.80}")
        actions = list(actions)
        if len(actions) != len(numbers):
            raise ValueError(f"there must be one action for each of {len(numbers)} environments, not {len(actions)}")
        slots = [self._slots[i] for i in numbers]
        if not all(slot.fresh or slot.broken for slot in slots):
            raise ResetNeeded("cannot step: call reset() first")
        over = [slot.number for slot in slots if slot.over]
        if over and self.autoreset_mode is AutoresetMode.DISABLED:
            raise ResetNeeded(
                f"cannot step: the episodes of environments {over} are over; reset them with a reset_mask"
            )
        self._whole = ids is None
        for slot, action in zip(slots, actions, strict=True):
            if slot.over:
                self._begin_reset(slot, action)
            else:
                self._begin_step(slot, action)
        if over:
            self._look_ahead()

    def recv(self, min_envs: int | None = None, timeout: float | None = None) -> Batch:
        """What the steps sent gave. Never waits for one beyond its own `step_timeout`.

        Without arguments, after a `send` to all: the whole batch, in the order of the environments, as `step` gives it.

        Otherwise a batch of those that are ready, the first ready first: at least `min_envs` of them (None: all that
        are out; never more than are out), or, after `timeout` seconds, as many as there are by then, perhaps none. With
        m environments in it, the observations are a batch of m, the arrays and every array of the info have shape
        (m,), and `info["env_id"]` (int64) says whose each is: what to give to `send` as `ids`, with the next actions.

        Raises RuntimeError where nothing is out, and ValueError for a `min_envs` that can never come.
        """
        out = len(self._sent) + len(self._landed)
        if not out:
            raise RuntimeError("cannot receive: nothing was sent; call send() first")
        if min_envs is not None and not 1 <= min_envs <= self.num_envs:
            raise ValueError(f"min_envs must be from 1 to the {self.num_envs} environments there are, not {min_envs!r}")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout must be a number of seconds, 0 or more, or None, not {timeout!r}")
        whole = self._whole and min_envs is None and timeout is None
        self._await(out if min_envs is None else min(min_envs, out), timeout)
        landed, self._landed = self._landed, []
        if landed:
            self._whole = False
        if whole:
            landed.sort(key=lambda one: one.number)
        infos = infos_of(landed) if whole else infos_of(landed) | ids_of(landed)
        return (
            self._batch([one.transition.observation for one in landed]),
            np.array([one.transition.reward for one in landed], dtype=np.float64),
            np.array([one.transition.terminated for one in landed], dtype=np.bool_),
            np.array([one.transition.truncated for one in landed], dtype=np.bool_),
            infos,
        )

    def _await(self, wanted: int, timeout: float | None) -> None:
        """Let what arrives land, until `wanted` have landed or the time is over."""
        ends = None if timeout is None else time.monotonic() + timeout
        while True:
            while not self._arrived.empty():
                self._land(self._arrived.get())
            now = time.monotonic()
            for sent in list(self._sent.values()):
                if sent.deadline is not None and sent.deadline <= now and not sent.future.done():
                    self._land(sent)
            if len(self._landed) >= wanted or (ends is not None and ends <= now):
                return
            times = [sent.deadline for sent in self._sent.values() if sent.deadline is not None]
            times += [] if ends is None else [ends]
            with suppress(queue.Empty):
                self._land(self._arrived.get(timeout=max(0.0, min(times) - now) if times else None))

    def _land(self, sent: Sent) -> None:
        """One has come back, or is overdue: what it gives is received next, or is followed by its automatic reset."""
        if self._sent.get(sent.number) is not sent:
            return  # it was given up before
        del self._sent[sent.number]
        slot = self._slots[sent.number]
        transition = self._finish(slot, sent)
        transition = transition._replace(info=self._tell(slot, transition.info))
        if sent.final is not None:
            transition = sent.final._replace(observation=transition.observation, info=transition.info)
        elif self.autoreset_mode is AutoresetMode.SAME_STEP and (transition.terminated or transition.truncated):
            self._begin_reset(slot, "", transition)
            self._look_ahead()
            return
        self._landed.append(Landed(sent.number, transition, sent.final))

    def _batch(self, observations: list[Any]) -> Any:
        return tuple(observations)

    def _is_out(self, number: int) -> bool:
        """Whether a step of that environment is under way, or has not been received."""
        return number in self._sent or any(one.number == number for one in self._landed)

    def _begin_step(self, slot: Slot, action: str) -> None:
        if slot.broken:
            failed: Future[Any] = Future()
            failed.set_result(failed_reset(slot.broken)._replace(truncated=True))
            self._send(slot, failed, False, action)
        else:
            self._send(slot, slot.worker.submit(partial(slot.env.step, action)), False, action)

    def _begin_reset(self, slot: Slot, action: str, final: Transition | None = None) -> None:
        reset = slot.env.reset
        if self._curriculum is not None:
            if not slot.broken or slot.draw is None:  # one that failed is tried again with the same draw
                slot.draw = self._curriculum.advance(slot.number)
            self._send(slot, slot.worker.submit(partial(reset, options={"task": slot.draw.task})), True, action, final)
        else:
            self._send(slot, slot.worker.submit(reset), True, action, final)

    def _send(
        self, slot: Slot, future: Future[Any], is_reset: bool, action: str, final: Transition | None = None
    ) -> None:
        deadline = None if self.step_timeout is None else time.monotonic() + self.step_timeout
        sent = Sent(slot.number, future, is_reset, action, deadline, final)
        self._sent[slot.number] = sent
        arrived = self._arrived  # not self: a stuck worker must not keep the environments alive
        future.add_done_callback(lambda _: arrived.put(sent))

    def _finish(self, slot: Slot, sent: Sent) -> Transition:
        """What the step or reset of one slot gave, or what it gives because it is overdue or failed."""
        future, is_reset = sent.future, sent.is_reset
        if not future.done():
            transition = self._overdue(slot, is_reset, sent.action)
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
        return failure("[the environment failed: the episode ends]", "internal_error")._replace(truncated=True)

    def _break(self, slot: Slot, why: str) -> Transition:
        """An automatic reset failed: the next step ends at once, and the one after it tries again."""
        _log.warning("environment %d could not be reset: %s", slot.number, why)
        slot.broken, slot.over, slot.fresh, slot.steps = why, False, False, 0
        return failed_reset(why)

    def save_tree(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the call tree to a file, as the single environment does; also while steps are under way."""
        self._executor.save(path)

    # -- looking

    def render(self) -> tuple[Any, ...]:
        """A frame of each environment."""
        return tuple(slot.env.render() for slot in self._slots)

    @property
    def envs(self) -> tuple[WorkspaceEnv, ...]:
        """The single environments, for looking at; step them through this one."""
        return tuple(slot.env for slot in self._slots)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, one after the other, or get an attribute.

        Raises RuntimeError for a method while steps are out, ClosedEnvironmentError, and AttributeError.
        """
        values = [getattr(env, name) for env in self.envs]
        if any(map(callable, values)):
            self._check_idle(f"call {name}")
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
            if slot.draw is not None:
                slot.draw = replace(slot.draw, task=state.task.name)

    # -- the end

    def close_extras(self, timeout: float | None = 10.0, **kwargs: Any) -> None:
        """Close every environment; waits at most `timeout` seconds (None: 10) and leaves the rest to the workers."""
        if not hasattr(self, "_slots"):
            return  # its making failed, and some versions of Gymnasium close what is collected
        ends = time.monotonic() + (10.0 if timeout is None else timeout)
        self._sent.clear()
        self._landed.clear()
        if self._templates is not None:
            self._templates.close()
        closers = []
        for slot in self._slots:
            slot.worker.stop()
            closers.append(start_closing(slot.env.close, f"bunshin-close-{slot.number}"))
        done = [closer.join(max(0.0, ends - time.monotonic())) for closer in closers]
        last = start_closing(self._executor.release, "bunshin-close")
        done.append(last.join(max(0.1, ends - time.monotonic())))
        done += [slot.worker.join(max(0.0, ends - time.monotonic())) for slot in self._slots]
        if self._templates is not None:
            done.append(self._templates.join(max(0.0, ends - time.monotonic())))
        if not all(done):
            _log.warning("close() did not wait for %d of its threads any longer", done.count(False))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check_open(self, step: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"cannot {step}: the environments are closed")

    def _check_idle(self, step: str) -> None:
        self._check_open(step)
        if self._sent or self._landed:
            raise RuntimeError(f"cannot {step}: steps have been sent; recv() them first")


class ToolsVectorEnv(BunshinVectorEnv):
    """The vector environment of `bunshin/Tools-v0`."""

    env_class = ToolsEnv
