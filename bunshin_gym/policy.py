"""Where snapshots are kept: what one is worth at a node, in seconds, against what it takes to make.

A snapshot saves replays: whoever needs a live workspace at its node, or below, forks it instead of making calls again
from the next one above. So it is worth what a replay takes, less a fork, times how many are expected to come for it;
and it costs one seal, which the rollout that makes it waits for. What seals and forks take is measured as they happen.
Another object with the same methods will do in place of the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bunshin_gym.tree import Node

__all__ = ["Costs", "DefaultPolicy", "Site", "SnapshotPolicy"]

# How much the last one counts in a running mean.
_WEIGHT = 0.25


@dataclass
class Costs:
    """What making a snapshot and forking one have taken of late, in seconds: running means, at first guesses."""

    seal: float = 0.05
    fork: float = 0.02
    seals: int = 0
    forks: int = 0

    def sealed(self, seconds: float) -> None:
        self.seals += 1
        self.seal += max(_WEIGHT, 1 / self.seals) * (seconds - self.seal)

    def forked(self, seconds: float) -> None:
        self.forks += 1
        self.fork += max(_WEIGHT, 1 / self.forks) * (seconds - self.fork)


@dataclass(frozen=True)
class Site:
    """A node that may get a snapshot, or has one. Seconds, unless said otherwise.

    `replay`: what the calls from the next snapshot above take; those that change no state need not be made again.
    `reuse`: how many rollouts are expected to come for it. `group`: rollouts of its task at a time. `costs`: of late.
    """

    node: Node
    replay: float
    reuse: float
    group: int
    costs: Costs


class SnapshotPolicy(Protocol):
    """What the executor asks."""

    def place(self, site: Site) -> bool:
        """Whether a snapshot is to be made here, where a rollout has just arrived with a live workspace."""

    def value(self, site: Site) -> float:
        """What the snapshot here is worth: where there are too many, that of the least value goes first."""


@dataclass(frozen=True)
class DefaultPolicy:
    """Where siblings are expected to save more than the seal takes; never for a replay of up to `threshold` seconds."""

    threshold: float = 0.2

    def place(self, site: Site) -> bool:
        return site.group > 1 and site.replay > self.threshold and self.value(site) > site.costs.seal

    def value(self, site: Site) -> float:
        return max(0.0, site.replay - site.costs.fork) * site.reuse
