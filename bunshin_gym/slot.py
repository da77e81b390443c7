"""A slot of a vector environment: one environment, its worker, and where its episode stands for those outside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from bunshin_gym.curriculum import Draw
from bunshin_gym.env import WorkspaceEnv
from bunshin_gym.episode import Transition
from bunshin_gym.worker import Worker

__all__ = [
    "Landed",
    "Sent",
    "Slot",
    "check_arguments",
    "failed_reset",
    "failure",
    "ids_of",
    "infos_of",
    "numbers_of",
    "options_of_each",
    "seeds_of_each",
    "start_closing",
]


@dataclass(eq=False)
class Sent:
    """A step or a reset that is under way. `final` is the step before it, where an automatic reset belongs to one."""

    number: int
    future: Future[Any]
    is_reset: bool
    action: str
    deadline: float | None  # of the monotonic clock
    final: Transition | None = None


@dataclass(frozen=True)
class Landed:
    """What was sent has come back: of which environment, what it gave, and what ended there in the same step."""

    number: int
    transition: Transition
    final: Transition | None = None


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
        self.draw: Draw | None = None  # what its group is at, where there are groups

    def replace(self) -> None:
        """A new environment and a new worker in place of ones that are stuck; its random numbers go on."""
        old, worker = self.env, self.worker
        worker.stop()
        self.env = self._make()
        if old._np_random is not None:
            self.env.np_random = copy.deepcopy(old.np_random)
        self.worker = Worker(f"bunshin-env-{self.number}")
        start_closing(old.close, "bunshin-close")

    def begun(self, observation: Any) -> None:
        self.observation, self.fresh, self.over, self.broken, self.steps = observation, True, False, "", 0


class _Infos(VectorEnv[Any, Any, Any]):
    """Gymnasium's way of putting infos together, for a batch of any size."""

    def __init__(self, size: int) -> None:
        self.num_envs = size

    def add(self, infos: dict[str, Any], info: dict[str, Any], number: int) -> dict[str, Any]:
        return self._add_info(infos, info, number)


def infos_of(landed: Sequence[Landed]) -> dict[str, Any]:
    """The infos of a batch, as a vector environment gives them."""
    batch = _Infos(len(landed))
    infos: dict[str, Any] = {}
    for i, one in enumerate(landed):
        if one.final is not None:
            infos = batch.add(infos, {"final_obs": one.final.observation, "final_info": one.final.info}, i)
        infos = batch.add(infos, one.transition.info, i)
    return infos


def ids_of(landed: Sequence[Landed]) -> dict[str, Any]:
    """Whose each entry of a batch is."""
    numbers = np.array([one.number for one in landed], dtype=np.int64)
    return {"env_id": numbers, "_env_id": np.ones(len(landed), dtype=np.bool_)}


def check_arguments(
    num_envs: int,
    max_episode_steps: int | None,
    step_timeout: float | None,
    group_size: int | None,
    prepare_ahead: int | None,
) -> None:
    """Raise ValueError where the arguments of a vector environment make no sense."""
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, not {num_envs}")
    if group_size is not None and (group_size < 1 or num_envs % group_size):
        raise ValueError(f"num_envs must be a multiple of group_size: {num_envs} is none of {group_size}")
    if prepare_ahead is not None and (prepare_ahead < 0 or group_size is None):
        raise ValueError(f"prepare_ahead must be 0 or more, and needs a group_size, not {prepare_ahead}")
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(f"max_episode_steps must be at least 1, not {max_episode_steps}")
    if step_timeout is not None and not step_timeout > 0:
        raise ValueError(f"step_timeout must be a positive number of seconds or None, not {step_timeout!r}")


def failed_reset(why: str) -> Transition:
    """What an automatic reset gives that failed."""
    return failure(f"[the environment could not be reset: {why}]", "reset_failed")


def failure(text: str, kind: str) -> Transition:
    info = {
        "exit_code": -1,
        "exit_reason": "not_run",
        "output_truncated": False,
        "failure_kind": kind,
        "call_valid": True,
        "timed_out": False,
    }
    return Transition(text, 0.0, False, False, info)


def start_closing(close: Callable[[], None], name: str) -> Worker:
    """Close something in a thread of its own, to be joined or not."""
    worker = Worker(name)
    worker.submit(close)
    worker.stop()
    return worker


def numbers_of(ids: Sequence[int] | NDArray[np.integer[Any]], n: int) -> list[int]:
    """The environments that `ids` names. Raises TypeError and ValueError for what names none of the n, or one twice."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise TypeError(f"ids must be a list or a one-dimensional array of whole numbers, not {ids!r}")
    numbers = [int(i) for i in array]
    if wrong := [i for i in numbers if not 0 <= i < n]:
        raise ValueError(f"there are environments 0 to {n - 1}, not {wrong}")
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"ids must name each environment once, not {numbers}")
    return numbers


def seeds_of_each(seed: int | Sequence[int | None] | None, n: int) -> list[int | None]:
    if seed is None:
        return [None] * n
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + i for i in range(n)]
    if len(seed) != n:
        raise ValueError(f"there must be one seed for each of {n} environments, not {len(seed)}")
    return [None if one is None else int(one) for one in seed]


def options_of_each(options: Any, n: int) -> tuple[NDArray[np.bool_], list[dict[str, Any]]]:
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
