"""Step 3 of a call: a live workspace for a rollout, at its node. Its own, or a fork; and what is owed replayed in it.

What a hit skipped is a debt: the calls between the node where the rollout's workspace stands and its own. It is paid
from whatever costs least: that workspace, or the nearest snapshot, of the rollout's own history or of another one that
led to the same state (debt.py says which calls need not be made). A replayed call has to give what the record says, and
to lead to the state it led to; where it does not, the record is dropped, and from there on the workspace is right.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from typing import cast

from bunshin_gym.budget import Ledger
from bunshin_gym.debt import Debt, notices, owed, unreplayable
from bunshin_gym.errors import WorkspaceError, WorkspaceLost
from bunshin_gym.frozen import Given
from bunshin_gym.kept import Kept
from bunshin_gym.looks import agree, of, strict
from bunshin_gym.policy import Costs
from bunshin_gym.rollout import Rollout
from bunshin_gym.state import DIGEST_SIZE, StateDigest, combine
from bunshin_gym.stats import Stats
from bunshin_gym.tools import ExitReason, ToolResult
from bunshin_gym.tree import Closable, Edge, Node, Step, Tree
from bunshin_gym.workspace import Snapshot, Workspace

__all__ = ["CUT_SHORT", "PATIENCE", "UNCACHED", "Materialiser", "Prepare"]

Prepare = Callable[[], Workspace]

# Results that say more about the machine at that moment than about the state: never answered from the tree.
CUT_SHORT = (ExitReason.TIMEOUT, ExitReason.OUT_OF_MEMORY)
UNCACHED = (*CUT_SHORT, ExitReason.WORKSPACE_LOST)
# In the background a call may take so many times its time limit: it runs only where nobody else does.
PATIENCE = 10.0

_log = logging.getLogger("bunshin_gym")


class Materialiser:
    """Brings workspaces to nodes. `discard` closes what the tree lets go of; `digests` says whether states count."""

    def __init__(
        self, tree: Tree, stats: Stats, costs: Costs, discard: Callable[[list[Closable]], None], ledger: Ledger,
        *, digests: bool,
    ) -> None:  # fmt: skip
        self.tree = tree
        self.stats = stats
        self.costs = costs
        self.ledger = ledger
        ledger.register(Kept(tree, ledger, discard, unreplayable))
        self.digests = digests
        self.prepare: dict[Node, Prepare] = {}
        self._discard = discard

    def bring(self, rollout: Rollout, *, strict: bool = False) -> Workspace:
        """A live workspace at the rollout's node; by the very calls of its history if `strict`.

        Raises WorkspaceLost where its own is dead or where there is no way back to its state; ForkError and
        WorkspaceError where a fork fails.
        """
        rollout.reclaim()
        own, node = rollout.workspace, rollout.node
        if own is not None and not own.alive:
            self.stats.add(lost=1)
            rollout.drop()
            raise WorkspaceLost("cannot run the call: the workspace is gone")
        self.wake(rollout)
        if own is not None and rollout.stands(node, strict=strict):
            return own
        base = self._base(rollout, strict=strict) if own is not None else None
        # Pinned, so that nobody evicts it while it is forked.
        found = self.tree.nearest(node, strict=strict, notices=notices)
        try:
            debt = owed(base, node, strict=strict) if base is not None else None
            if debt is None or (found is not None and self._cheaper(owed(found[1], node, strict=strict), debt)):
                with self.ledger.room(rollout, cast(Snapshot, found[0].snapshot).spilled if found else 0):
                    debt = owed(self._fork_into(rollout, found, node), node, strict=strict)
        finally:
            if found is not None:
                self._discard(self.tree.unpin(found[0]))
        rollout.base = debt.start
        if debt.steps:
            with self.stats.timed("replay", at=node.number):
                self._replay(rollout, debt)
        if rollout.workspace is None:
            raise WorkspaceLost("cannot run the call: the workspace was lost while earlier calls were replayed in it")
        if self.digests and rollout.strict is None and rollout.at is not None and not rollout.at.private:
            rollout.strict = self._settle(rollout.workspace, rollout.at)
        return rollout.workspace

    def wake(self, rollout: Rollout) -> None:
        """Bring the rollout's workspace back where it is parked. Raises ForkError and MemoryBudgetExceeded."""
        workspace = rollout.workspace
        if workspace is not None and workspace.parked:
            with self.ledger.room(rollout), self.stats.timed("wake"):
                workspace.wake()
            self.stats.add(woken=1)

    def _base(self, rollout: Rollout, *, strict: bool) -> Node | None:
        """Where in the rollout's history its workspace stands, if the way from there can be made up for in it."""
        base, at, node = rollout.base, rollout.at, rollout.node
        if base is not None and node.descends(base):
            return base if at is base or not (strict or any(map(notices, node.path_from(base)))) else None
        if strict or at is None or at.state is None:
            return None
        # A call has led back to where it was before: there, or above, it may be of the workspace's state.
        above: Node | None = node
        while above is not None and above.state is not at.state:
            above = above.parent if above.step is not None and not notices(above.step) else None
        return above

    def _cheaper(self, forked: Debt, own: Debt) -> bool:
        """Whether a fork reaches the node in less time than the workspace that is there already."""
        return self.costs.fork + forked.seconds < own.seconds

    def fresh(self, root: Node) -> Workspace:
        """A newly prepared workspace, and what its state is."""
        prepare = self.prepare.get(root)
        if prepare is None:
            raise WorkspaceLost("cannot prepare a workspace: the executor is closed")
        with self.stats.timed("prepare", at=root.number):
            workspace = prepare()
        root.given = Given.by(workspace.spec)
        self.stats.add(prepared=1)
        if self.digests:
            self._settle(workspace, root)
        return workspace

    def digest(self, workspace: Workspace, at: Node, edge: Edge | None, *, alone: bool = False) -> StateDigest | None:
        """What a workspace's state is after the call `edge` at `at` (None: none since it came there); None: unknown.

        `alone`: what counts by history is as it is in no other history, also not after the same calls.
        """
        # What is told apart by its origin must be so by all that the call may have noticed.
        origin = at.ident if edge is None else combine(at.exactly if strict(edge.call) else at.ident, edge.key)
        if alone:
            origin = combine(origin, secrets.token_bytes(DIGEST_SIZE))
        try:
            with self.stats.timed("digest", at=at.number):
                found = workspace.digest(origin)
        except WorkspaceError as error:
            self.stats.add(digests_failed=1)
            _log.info("a state is not compared with others: %s", error)
            return None
        self.stats.add(digests=1, unique_states=int(bool(found.unique)))
        return found

    def _settle(self, workspace: Workspace, at: Node) -> bytes | None:
        """Say what the state at `at` is; returns the workspace's strict digest."""
        digest = self.digest(workspace, at, None)
        if digest is not None:
            self.tree.settle(at, digest)
        return digest.strict if digest is not None else None

    def _fork_into(self, rollout: Rollout, found: tuple[Node, Node] | None, node: Node) -> Node:
        """Give the rollout a fork of a snapshot, or a newly prepared workspace; returns where in its history it is."""
        holder, base = found if found is not None else (node.root, node.root)
        if node.precarious and any(step.aside for step in node.path_from(base)):
            raise WorkspaceLost(
                "cannot bring the workspace back: its state depends on a call that gives something else each time"
            )
        if found is None:
            child = self.fresh(node.root)
        else:
            snapshot = cast("Snapshot | None", holder.snapshot)
            if snapshot is None:  # pinned, so only the executor's own end takes it away
                raise WorkspaceLost("cannot fork a workspace: the executor is closed")
            begin = time.perf_counter()
            with self.stats.timed("fork", at=holder.number):
                (forked,) = snapshot.fork(1)
            self.costs.forked(time.perf_counter() - begin)
            if isinstance(forked, WorkspaceError):
                raise forked
            self.stats.add(forks=1)
            child = forked
        rollout.adopt(child, holder, base)
        return base

    def _replay(self, rollout: Rollout, debt: Debt) -> None:
        node = rollout.node
        for step, stands in debt.steps:
            result = self._again(rollout, step)
            workspace, at = rollout.workspace, rollout.at
            if result is None or workspace is None or at is None:
                return
            if agree(step.result, result, of(step.edge.call)) and self._leads_there(rollout, workspace, at, step):
                there = step
                if at is not step.source:
                    there, gone = self.tree.follow(at, step)
                    self._discard(gone)
                rollout.base, rollout.at = stands, there.target
                continue
            self.stats.add(replay_mismatches=1)
            _log.info("a replayed call gave something else and is not shared any more: %s", step.edge.call)
            rest = node.path_from(step.target)
            if not step.private:
                self._discard(self.tree.forget(step))
            rollout.node = step.source
            self._enter_alone(rollout, step, result)
            for later in rest:
                result = self._again(rollout, later)
                if result is None:
                    return
                self._enter_alone(rollout, later, result)
            return

    def _again(self, rollout: Rollout, step: Step) -> ToolResult | None:
        """A call made once more in the rollout's workspace: what it gives; None where the workspace is lost."""
        if rollout.workspace is None:
            return None
        self.stats.add(replays=1)
        result = rollout.workspace.call(step.edge.call, step.edge.timeout * (PATIENCE if rollout.background else 1))
        if result.exit_reason is not ExitReason.WORKSPACE_LOST:
            return result
        self.stats.add(lost=1)
        rollout.drop()
        return None

    def _enter_alone(self, rollout: Rollout, step: Step, result: ToolResult) -> None:
        """What is true from here on is what the workspace says, to this rollout alone."""
        private, _ = self.tree.insert(rollout.node, step.edge, result, private=True)
        rollout.move(private, private.target)

    def _leads_there(self, rollout: Rollout, workspace: Workspace, at: Node, step: Step) -> bool:
        """Whether the replayed call has led to the state that it led to when it was recorded, as far as can be told."""
        wanted = step.target.state
        rollout.strict = None
        if not self.digests or wanted is None or step.private:
            return True
        digest = self.digest(workspace, at, step.edge)
        if digest is None:
            return True
        rollout.strict = digest.strict
        return digest.loose == wanted.loose or not digest.contradicts(wanted.parts)
