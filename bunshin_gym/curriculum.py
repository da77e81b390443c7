"""Which task comes when: epochs over a taskset for groups of rollouts, as GRPO and its kin train.

The tasks are drawn without replacement: an epoch is the taskset in an order that the seed and the epoch's number give.
Of `groups` groups, group k's r-th round is draw number r * groups + k. So which task a group has next depends on
nothing but how often it has begun: not on which rollout was faster. Every draw belongs to one group, and each of its
members plays it once: collect the episodes by draw (`group_id`), and a draw is complete when there are as many as the
group has members.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curriculum", "Draw"]


@dataclass(frozen=True)
class Draw:
    """One task for one group, once. `number` is its own over the whole run."""

    task: str
    group: int
    number: int
    epoch: int

    @property
    def info(self) -> dict[str, object]:
        return {"task": self.task, "group": self.group, "group_id": self.number, "epoch": self.epoch}


class Curriculum:
    """Hands out draws to the members of groups; members k * size to (k + 1) * size - 1 are group k. Thread-safe."""

    def __init__(self, tasks: Sequence[str], groups: int, size: int, seed: int | None = None) -> None:
        self._tasks = tuple(tasks)
        self._groups = groups
        self._size = size
        self._lock = threading.Lock()
        self.restart(seed)

    @property
    def seed(self) -> int:
        """What the order of every epoch follows from."""
        return self._seed

    def restart(self, seed: int | None) -> None:
        """Begin again with epoch 0, in the order of `seed`; None: of a random one."""
        with self._lock:
            self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
            self._rounds = [0] * (self._groups * self._size)  # of each member: the round it begins next

    def order(self, epoch: int) -> list[str]:
        """The taskset as that epoch goes through it."""
        return [self._tasks[i] for i in np.random.default_rng([self._seed, epoch]).permutation(len(self._tasks))]

    def at(self, number: int) -> Draw:
        """The draw of that number."""
        epoch, place = divmod(number, len(self._tasks))
        return Draw(self.order(epoch)[place], number % self._groups, number, epoch)

    def advance(self, member: int) -> Draw:
        """The next draw of the member's group that the member has not played."""
        with self._lock:
            step, self._rounds[member] = self._rounds[member], self._rounds[member] + 1
        return self.at(step * self._groups + member // self._size)

    def align(self, group: int) -> None:
        """The members of a group all begin anew: with the draw after the furthest of them."""
        members = slice(group * self._size, (group + 1) * self._size)
        with self._lock:
            self._rounds[members] = [max(self._rounds[members])] * self._size

    def deal(self, seeds: Sequence[int | None], mask: NDArray[np.bool_], named: Sequence[object]) -> dict[int, Draw]:
        """The draws of the members in the mask, which all begin anew. `named` are the tasks the caller asks for.

        A seed for all (the first that there is) begins the epochs anew. Raises ValueError, and deals nothing, where the
        caller asks for several tasks in one group.
        """
        for first in range(0, len(mask), self._size):
            last = first + self._size - 1
            names = {str(getattr(named[i], "name", named[i])) for i in range(first, last + 1) if mask[i]}
            if len(names) > 1:
                raise ValueError(
                    f"environments {first} to {last} are one group and play the same task, not "
                    f"{', '.join(sorted(names))}"
                )
        given = [seed for seed in seeds if seed is not None]
        if given and mask.all():
            self.restart(given[0])
        for group in range(self._groups):
            if mask[group * self._size : (group + 1) * self._size].all():
                self.align(group)
        return {i: self.advance(i) for i in range(len(mask)) if mask[i]}

    def upcoming(self, count: int) -> list[str]:
        """The tasks of the next `count` draws that no member has begun, the soonest first, each once."""
        with self._lock:
            first = [max(self._rounds[k * self._size : (k + 1) * self._size]) for k in range(self._groups)]
        numbers = sorted((first[k] + r) * self._groups + k for k in range(self._groups) for r in range(count))
        return list(dict.fromkeys(self.at(number).task for number in numbers[:count]))
