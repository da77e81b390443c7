"""Where snapshots are kept: what one is worth at a node, in seconds that it is expected to save.

A snapshot at a node saves the replay from the next one above, each time a rollout needs a live workspace there. It
costs the making, and the memory it adds. The default asks for a least replay; another object with the same method will
do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bunshin_gym.tree import Node

__all__ = ["DefaultPolicy", "Site", "SnapshotPolicy"]


@dataclass(frozen=True)
class Site:
    """A node that may get a snapshot. `replay`: seconds from the next one above; `group`: rollouts of its task at a
    time."""

    node: Node
    replay: float
    group: int


class SnapshotPolicy(Protocol):
    """What the executor asks."""

    def place(self, site: Site) -> bool:
        """Whether a snapshot is to be made here, where a rollout has just arrived with a live workspace."""


@dataclass(frozen=True)
class DefaultPolicy:
    """Where siblings are expected, and replaying takes more than `threshold` seconds."""

    threshold: float = 0.2

    def place(self, site: Site) -> bool:
        return site.group > 1 and site.replay > self.threshold
