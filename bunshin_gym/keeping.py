"""The snapshots of a tree: made where the policy says, kept at the nodes that they are of, let go of by their value."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from bunshin_gym.debt import owed
from bunshin_gym.errors import ForkError, WorkspaceError
from bunshin_gym.policy import Costs, Site, SnapshotPolicy
from bunshin_gym.reuse import expected
from bunshin_gym.rollout import Rollout
from bunshin_gym.stats import Stats
from bunshin_gym.tree import Closable, Node, Tree
from bunshin_gym.workspace import Workspace

__all__ = ["Keeper"]

_log = logging.getLogger("bunshin_gym")


class Keeper:
    """Makes snapshots for groups of `group` rollouts. `discard` closes what the tree lets go of."""

    def __init__(
        self,
        tree: Tree,
        stats: Stats,
        policy: SnapshotPolicy,
        costs: Costs,
        discard: Callable[[list[Closable]], None],
        *,
        group: int,
    ) -> None:
        self.policy = policy
        self.costs = costs
        self._tree = tree
        self._stats = stats
        self._discard = discard
        self.group = group
        self._closed = False
        tree.value = self.value

    def seal_root(self, root: Node, workspace: Workspace) -> None:
        """The snapshot that all rollouts of a root begin with. Where there can be none, each prepares its own."""
        self._tree.pin(root)
        try:
            self.attach(root, workspace)
        except ForkError as error:
            _log.warning("a task's workspace cannot be forked, so each rollout prepares its own: %s", error)

    def attach(self, node: Node, workspace: Workspace) -> None:
        """Seal a workspace that stands at `node`, and keep that there. Raises ForkError and WorkspaceError."""
        begin = time.perf_counter()
        with self._stats.timed("snapshot", at=node.number):
            snapshot = workspace.snapshot()
        self.costs.sealed(time.perf_counter() - begin)
        self._stats.add(snapshots=1)
        if self._closed:
            snapshot.close()
            return
        self._discard(self._tree.attach(node, snapshot))

    def consider(self, rollout: Rollout) -> None:
        """A rollout has just made a call: keep a snapshot of where that led if the policy says that it pays."""
        node, workspace = rollout.at, rollout.workspace
        if self.group < 2 or node is None or workspace is None or not node.linked:
            return
        if node.precarious:  # who comes here has a workspace already
            return
        site = self._site(node)
        if site is None or site.replay == 0:
            return
        if not self.policy.place(site):
            self._stats.add(snapshots_declined=1)
            return
        try:
            self.attach(node, workspace)
        except WorkspaceError as error:
            _log.info("no snapshot is kept after %s: %s", node.edge.call if node.edge else "", error)

    def value(self, node: Node) -> float:
        """What the snapshot at `node` is worth, as the policy reckons."""
        site = self._site(node)
        return self.policy.value(site) if site is not None else float("inf")

    def close(self) -> None:
        """Keep nothing more. The tree is cleared by its owner."""
        self._closed = True

    def _site(self, node: Node) -> Site | None:
        """The node as the policy is told of it; None where there is no snapshot above."""
        base = self._tree.above(node)
        if base is None:
            return None
        # Rollouts of one policy open alike: until there is more to go by, three calls of four are taken to be the same.
        follow = (3 + self._stats.hits + self._stats.waits) / (4 + self._stats.calls)
        reuse = expected(node, self.group, min(follow, 1.0))
        return Site(node, owed(base, node).seconds, reuse, self.group, self.costs)
