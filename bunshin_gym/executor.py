"""The executor: the only place where tree, drafts and workspaces meet.

    executor.run(rollout, call)
      1 tree.match        a hit: the result returns, no process is touched; a sibling's call in flight is waited for
      2 speculator.take   a draft matches: its workspace is adopted
      3 materialise       own workspace, or nearest snapshot, fork and replay; then run the call
      4 tree.insert       and perhaps keep a snapshot there
      5 speculator.observe
      6 the result goes to whoever makes an observation of it

One executor serves any number of rollouts, each used by one thread at a time, all of them at once. `cache` and `share`
switch the two techniques off: without `cache` every call is run, without `share` every rollout prepares a workspace of
its own instead of forking one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import cast

from bunshin_gym.errors import ForkError, TaskError, WorkspaceError, WorkspaceLost
from bunshin_gym.flight import Flights, Landing
from bunshin_gym.rollout import Rollout
from bunshin_gym.speculate import NullSpeculator, Speculator
from bunshin_gym.stats import Stats
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult
from bunshin_gym.tools.purity import agree, cacheable
from bunshin_gym.tree import Closable, Edge, Node, Tree
from bunshin_gym.workspace import Snapshot, Workspace

__all__ = ["Executor", "Place"]

Prepare = Callable[[], Workspace]

# Results that say more about the machine at that moment than about the state: never answered from the tree.
_UNCACHED = (ExitReason.TIMEOUT, ExitReason.OUT_OF_MEMORY, ExitReason.WORKSPACE_LOST)
# What a fork is reckoned to take when it is weighed against replaying calls in a workspace that is there already.
_FORK_SECONDS = 0.02

_log = logging.getLogger("bunshin_gym")


@dataclass(eq=False)
class Place:
    """A state somebody may want to come back to. It stays reachable until `release`."""

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


class Executor:
    """Runs the calls of rollouts.

    `group` is how many rollouts of one task are expected at a time; above 1, a state that takes more than
    `snapshot_seconds` to replay gets a snapshot of its own.
    """

    def __init__(
        self,
        *,
        cache: bool = True,
        share: bool = True,
        group: int = 1,
        snapshot_seconds: float = 0.2,
        tree: Tree | None = None,
        speculator: Speculator | None = None,
        stats: Stats | None = None,
    ) -> None:
        self.cache = cache
        self.share = share
        self.group = group
        self.snapshot_seconds = snapshot_seconds
        self.tree = tree if tree is not None else Tree()
        self.speculator = speculator if speculator is not None else NullSpeculator()
        self.stats = stats if stats is not None else Stats()
        self._flights = Flights()
        self._lock = threading.Lock()
        self._root_locks: dict[Hashable, threading.Lock] = {}
        self._prepare: dict[Node, Prepare] = {}
        self._forgotten: deque[Node] = deque()
        self._users = 0
        self._closed = False

    # -- rollouts: birth and death

    def open(self, key: Hashable, prepare: Prepare) -> Rollout:
        """A new rollout at the root `key`. The first one prepares the workspace that all later ones are forks of.

        Raises what `prepare` raises; the next one then tries again.
        """
        self._sweep()
        with self._lock:
            if self._closed:
                raise WorkspaceError("cannot start a rollout: the executor is closed")
            root_lock = self._root_locks.setdefault(key, threading.Lock())
        with root_lock:
            root = self.tree.root(key)
            rollout = Rollout(root)
            if root not in self._prepare:
                workspace = self._prepared(prepare)
                try:
                    if self.share:
                        self._seal_root(root, workspace)
                    self._prepare[root] = prepare
                    rollout.adopt(workspace, root)
                except BaseException:
                    workspace.close()
                    raise
        return rollout

    def close_rollout(self, rollout: Rollout) -> None:
        """The end of an episode: its workspace goes, what was learned from it stays in the tree."""
        rollout.close()

    # -- the six steps

    def run(self, rollout: Rollout, call: ToolCall, timeout: float) -> ToolResult:
        """The result of `call` where `rollout` stands; the rollout moves on.

        Raises WorkspaceError where no workspace could be had to run it in. The loss of the workspace while it runs is a
        result; the rollout then stays where it was, and has no workspace any more.
        """
        self._sweep()
        self.stats.add(calls=1)
        edge = Edge(call, timeout)
        waited = False
        while self._may_share(rollout.node, edge):
            child = self.tree.match(rollout.node, edge)  # 1
            if child is not None and child.result is not None:
                self._count_hit(child, waited)
                rollout.node = child
                return child.result
            flight, leading = self._flights.join(rollout.node, edge)
            if not leading:
                waited = flight.wait() is Landing.SHARED
                if not waited and flight.wait() is Landing.UNSHARED:
                    break
                continue
            with flight:
                if self.tree.match(rollout.node, edge) is not None:
                    continue  # it landed between our look at the tree and our taking the lead
                result = self._execute(rollout, edge, private=False)
                if rollout.node.linked:
                    flight.land(Landing.SHARED)
                elif result.exit_reason is not ExitReason.WORKSPACE_LOST:
                    flight.land(Landing.UNSHARED)
                return result
        return self._execute(rollout, edge, private=True)

    def shares(self, rollout: Rollout, call: ToolCall | None, timeout: float) -> bool:
        """Whether what the call gives here may be shared with siblings; without a call: what a verifier says here."""
        return self._may_share(rollout.node, None if call is None else Edge(call, timeout))

    def knows(self, rollout: Rollout, call: ToolCall, timeout: float) -> bool:
        """Whether the call would be answered from the tree, as things stand."""
        return self.shares(rollout, call, timeout) and self.tree.match(rollout.node, Edge(call, timeout)) is not None

    def hint(self, rollout: Rollout, text: str) -> None:
        """The policy's partial output, for the speculator."""
        self.speculator.hint(rollout.node, text)

    def _execute(self, rollout: Rollout, edge: Edge, *, private: bool) -> ToolResult:
        """Steps 2 to 5: the call is really run."""
        self.stats.add(misses=1)
        draft = self.speculator.take(rollout.node, edge)  # 2
        if draft is not None:
            self.stats.add(drafts=1)
            rollout.adopt(draft.workspace, rollout.node)
            result = draft.result
        else:
            workspace = self.materialise(rollout)  # 3
            with self.stats.timed("run"):
                result = workspace.call(edge.call, edge.timeout)
        if result.exit_reason is ExitReason.WORKSPACE_LOST:
            self.stats.add(lost=1)
            rollout.drop()
            return result
        self._arrive(rollout, edge, result, private=private or edge in rollout.node.volatile)  # 4
        self._keep_snapshot(rollout)
        self.speculator.observe(rollout.node)  # 5
        return result

    def materialise(self, rollout: Rollout) -> Workspace:
        """A live workspace for the rollout, at its node: its own, or a fork; and what is owed replayed in it.

        Raises WorkspaceLost where its own is dead or where there is no way back to its state; ForkError and
        WorkspaceError where a fork fails.
        """
        own, node = rollout.workspace, rollout.node
        if own is not None and not own.alive:
            self.stats.add(lost=1)
            rollout.drop()
            raise WorkspaceLost("cannot run the call: the workspace is gone")
        if own is not None and rollout.at is node:
            return own
        start = rollout.at if own is not None and rollout.at is not None else None
        source = self.tree.nearest(node)  # pinned, so that nobody evicts it while it is forked
        try:
            if start is None or (source is not None and _cheaper(source, start, node)):
                start = self._fork_into(rollout, source, node)
        finally:
            if source is not None:
                self._unpin(source)
        with self.stats.timed("replay"):
            self._replay(rollout, node.path_from(start))
        if rollout.workspace is None:
            raise WorkspaceLost("cannot run the call: the workspace was lost while earlier calls were replayed in it")
        return rollout.workspace

    def verify(self, rollout: Rollout, verifier: Callable[[Workspace], float]) -> float:
        """What `verifier` says of the rollout's state, in [0, 1]; it gets a workspace that is closed afterwards.

        Siblings that end in the same state share the verdict. Raises TaskError where the verifier fails or says
        something else, and as `materialise`.
        """
        self.stats.add(verified=1)
        known = rollout.node.verdict
        if known is not None and self._may_share(rollout.node):
            self.stats.add(verdicts_shared=1)
            return known
        workspace = self.materialise(rollout)
        try:
            with self.stats.timed("verify"):
                verdict = float(verifier(workspace))
            if not 0.0 <= verdict <= 1.0:
                raise ValueError(f"it returned {verdict!r}, not a number in [0, 1]")
        except WorkspaceLost:
            raise
        except Exception as error:
            raise TaskError(f"the verifier failed: {type(error).__name__}: {error}") from error
        finally:
            rollout.drop()  # the verifier may have changed it: nobody is to run on in there
        rollout.node.verdict = verdict
        return verdict

    # -- states to come back to

    def keep(self, rollout: Rollout, *, live: bool = True) -> Place:
        """The rollout's state, as a place to resume from any number of times. The rollout goes on undisturbed.

        With `live` false the place is only a mark: no call will be made from there. Raises ForkError or WorkspaceLost
        where the state can neither be sealed nor replayed.
        """
        place = self._place(rollout.node)
        if not live or place.node.snapshot is not None:
            return place
        try:
            if rollout.workspace is not None and rollout.at is rollout.node and self.share:
                self._attach(place.node, rollout.workspace)
            elif _unreplayable(place.node):
                raise WorkspaceLost("cannot keep the state: it cannot be replayed, and there is no workspace to seal")
        except WorkspaceError as error:
            if _unreplayable(place.node):
                place.release()
                raise
            _log.info("a state is kept without a snapshot and will be replayed: %s", error)
        return place

    def resume(self, place: Place) -> Rollout:
        """A new rollout at a place that was kept. Raises ValueError where that was released, or is another's."""
        if place.released or place.executor is not self:
            raise ValueError("cannot resume: the state was closed, or belongs to another environment")
        # The rollout holds on to the place by itself until it has a workspace: the other holders may let go before.
        return Rollout(place.node, anchor=self._place(place.node))

    def _place(self, node: Node) -> Place:
        self._sweep()
        self.tree.pin(node)
        return Place(node, self)

    # -- users and the end

    def acquire(self) -> None:
        """One more user; `release` closes the executor with the last one."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users <= 0
        if last:
            self.close()

    def close(self) -> None:
        """Let go of every snapshot and draft. Rollouts are closed by their owners. Idempotent."""
        with self._lock:
            self._closed = True
            self._prepare.clear()
        self.speculator.close()
        _close_all(self.tree.clear())

    # -- helpers, in the order of their use

    def _prepared(self, prepare: Prepare) -> Workspace:
        with self.stats.timed("prepare"):
            workspace = prepare()
        self.stats.add(prepared=1)
        return workspace

    def _seal_root(self, root: Node, workspace: Workspace) -> None:
        self.tree.pin(root)
        try:
            self._attach(root, workspace)
        except ForkError as error:
            _log.warning("a task's workspace cannot be forked, so each rollout prepares its own: %s", error)

    def _attach(self, node: Node, workspace: Workspace) -> None:
        with self.stats.timed("snapshot"):
            snapshot = workspace.snapshot()
        self.stats.add(snapshots=1)
        if self._closed:
            snapshot.close()
            return
        self._evict(self.tree.attach(node, snapshot))

    def _may_share(self, node: Node, edge: Edge | None = None) -> bool:
        if not self.cache or node.private:
            return False
        return edge is None or (edge not in node.volatile and cacheable(edge.call))

    def _count_hit(self, child: Node, waited: bool) -> None:
        self.stats.add(waits=int(waited), hits=int(not waited), saved_seconds=child.seconds)

    def _fork_into(self, rollout: Rollout, source: Node | None, node: Node) -> Node:
        """Give the rollout a fork of `source`, or a freshly prepared workspace; returns the node where that stands."""
        start = source if source is not None else node.root
        if any(step.private for step in node.path_from(start)) and _unreplayable(node, start):
            raise WorkspaceLost(
                "cannot bring the workspace back: its state depends on a call that gives something else each time"
            )
        if source is not None:
            snapshot = cast("Snapshot | None", source.snapshot)
            if snapshot is None:  # pinned, so only the executor's own end takes it away
                raise WorkspaceLost("cannot fork a workspace: the executor is closed")
            with self.stats.timed("fork"):
                (child,) = snapshot.fork(1)
            if isinstance(child, WorkspaceError):
                raise child
            self.stats.add(forks=1)
        else:
            prepare = self._prepare.get(start)
            if prepare is None:
                raise WorkspaceLost("cannot prepare a workspace: the executor is closed")
            child = self._prepared(prepare)
        rollout.adopt(child, start)
        return start

    def _replay(self, rollout: Rollout, path: Iterable[Node]) -> None:
        """Run the calls that led along `path` in the rollout's workspace.

        Where one gives something else than its record says, the record's branch is dropped, and what is true from there
        on is what the workspace says.
        """
        diverged = False
        for step in path:
            edge, recorded = step.edge, step.result
            if rollout.workspace is None or edge is None or recorded is None:
                return
            self.stats.add(replays=1)
            result = rollout.workspace.call(edge.call, edge.timeout)
            if result.exit_reason is ExitReason.WORKSPACE_LOST:
                self.stats.add(lost=1)
                rollout.drop()
                return
            if not diverged and agree(recorded, result):
                rollout.at = step
                continue
            if not diverged:
                diverged = True
                self.stats.add(replay_mismatches=1)
                _log.info("a replayed call gave something else than before and is not shared any more: %s", edge.call)
                if not step.private:
                    self._evict(self.tree.forget(step))
                rollout.node = rollout.at if rollout.at is not None else rollout.node
            self._arrive(rollout, edge, result, private=True)

    def _arrive(self, rollout: Rollout, edge: Edge, result: ToolResult, *, private: bool) -> None:
        """The call has been made: enter the state it led to, and move there."""
        if result.exit_reason is ExitReason.TIMEOUT:
            self.stats.add(timeouts=1)
        private = private or result.exit_reason in _UNCACHED
        child, evicted = self.tree.insert(rollout.node, edge, result, private=private)
        rollout.move(child)
        self._evict(evicted)

    def _keep_snapshot(self, rollout: Rollout) -> None:
        """Keep a snapshot here where siblings are expected and replaying to here would take them long."""
        node, workspace = rollout.node, rollout.workspace
        if not (self.share and self.group > 1 and node.linked and workspace is not None):
            return
        nearest = self.tree.nearest(node)
        if nearest is None:
            return
        try:
            if _replay_seconds(nearest, node) > self.snapshot_seconds:
                self._attach(node, workspace)
        except WorkspaceError as error:
            _log.info("no snapshot is kept after %s: %s", node.edge.call if node.edge else "", error)
        finally:
            self._unpin(nearest)

    def _sweep(self) -> None:
        """Unpin the places that were thrown away without being released."""
        while self._forgotten:
            self._unpin(self._forgotten.popleft())

    def _unpin(self, node: Node) -> None:
        self._evict(self.tree.unpin(node))

    def _evict(self, snapshots: list[Closable]) -> None:
        if snapshots:
            self.stats.add(snapshots_evicted=len(snapshots))
            _close_all(snapshots)


def _close_all(snapshots: Iterable[Closable]) -> None:
    for snapshot in snapshots:
        snapshot.close()


def _replay_seconds(start: Node, node: Node) -> float:
    return sum(step.seconds for step in node.path_from(start))


def _cheaper(source: Node, own: Node, node: Node) -> bool:
    """Whether a fork of `source` reaches `node` in less time than the workspace that stands at `own`."""
    return _FORK_SECONDS + _replay_seconds(source, node) < _replay_seconds(own, node)


def _unreplayable(node: Node, start: Node | None = None) -> bool:
    """Whether a call on the way from `start` (the root unless given) to `node` depends on more than the state."""
    path = node.path_from(start if start is not None else node.root)
    return any(
        step.result is not None
        and step.edge is not None
        and (
            step.result.exit_reason in _UNCACHED
            or not cacheable(step.edge.call)
            or (step.parent is not None and step.edge in step.parent.volatile)
        )
        for step in path
    )
