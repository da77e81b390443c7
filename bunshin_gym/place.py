"""A place: a state that somebody may want to come back to. It stays reachable until it is released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bunshin_gym.tree import Node

if TYPE_CHECKING:
    from bunshin_gym.executor import Executor

__all__ = ["Place"]


@dataclass(eq=False)
class Place:
    """`node`, pinned in the tree of `executor`."""

    node: Node
    executor: Executor
    released: bool = False

    def release(self) -> None:
        """Let go of it. Idempotent."""
        if not self.released:
            self.released = True
            self.executor._unpin(self.node)

    def __del__(self) -> None:
        # The collector may run in the middle of anything, also with the tree's lock held: only leave a note.
        if not self.released:
            self.executor._forgotten.append(self.node)
