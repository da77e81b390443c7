"""Where snapshots are kept: what one is worth at a node, in seconds that it is expected to save.

A snapshot at a node saves the replay from the next one above, each time a rollout needs a live workspace there. It
costs the making, and the memory it adds. The default weighs these; another object with the same two methods will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bunshin_gym.tree import Node

__all__ = ["DefaultPolicy", "Site", "SnapshotPolicy"]


@dataclass(frozen=True)
class Site:
    """A node that holds a snapshot, or may get one. `replay`: seconds from the next snapshot above; `group`: rollouts
    of its task at a time; `size`: bytes the snapshot adds (0 where it is not made yet)."""

    node: Node
    replay: float
    group: int
    size: int = 0


class SnapshotPolicy(Protocol):
    """What the executor asks."""

    def place(self, site: Site) -> bool:
        """Whether a snapshot is to be made here, where a rollout has just arrived with a live workspace."""

    def worth(self, site: Site) -> float:
        """Seconds that keeping the snapshot is expected to save. The least worth for its bytes goes first."""


@dataclass(frozen=True)
class DefaultPolicy:
    """Replay time times expected reuse, against the milliseconds of making.

    `threshold`: seconds of replay below which a snapshot is never made.
    """

    threshold: float = 0.2

    def place(self, site: Site) -> bool:
        return site.group > 1 and site.replay > self.threshold

    def worth(self, site: Site) -> float:
        reuse = 1 + sum(step.hits for step in site.node.steps.values()) + (site.node.step.hits if site.node.step else 0)
        return site.replay * min(reuse, site.group)
