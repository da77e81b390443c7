"""The executor: the only place where tree, drafts and workspaces meet.

    executor.run(rollout, call)
      1 tree.match        a hit: the result returns, no process is touched; a sibling's call in flight is waited for
      2 speculator.take   a draft matches: its workspace is adopted
      3 materialise       own workspace, or nearest snapshot, fork and replay; then run the call
      4 tree.insert       the state it led to; and perhaps keep a snapshot there
      5 speculator.observe
      6 the result goes to whoever makes an observation of it

One executor serves any number of rollouts, each used by one thread at a time, all of them at once. `cache` and `share`
switch the two techniques off: without `cache` every call is run, without `share` every rollout prepares a workspace of
its own instead of forking one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Literal

from bunshin_gym.arrive import Arrivals
from bunshin_gym.audit import Auditor
from bunshin_gym.budget import Ledger, at_work
from bunshin_gym.debt import unreplayable
from bunshin_gym.errors import TaskError, TreeFileError, WorkspaceError, WorkspaceLost
from bunshin_gym.events import Events
from bunshin_gym.flight import Flight, Flights, Landing, Remembered
from bunshin_gym.keeping import Keeper
from bunshin_gym.looks import cacheable, strict
from bunshin_gym.materialise import CUT_SHORT, Materialiser, Prepare
from bunshin_gym.place import Place
from bunshin_gym.policy import Costs, DefaultPolicy, SnapshotPolicy
from bunshin_gym.recall import Recall, Stamper
from bunshin_gym.rollout import Anchor, Rollout
from bunshin_gym.speculate import Predict, Speculator, ready
from bunshin_gym.stats import Stats
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult
from bunshin_gym.tree import Closable, Edge, Node, Step, Tree
from bunshin_gym.treefile import TreeFile
from bunshin_gym.workspace import Workspace

__all__ = ["Executor", "Key", "Place"]

Key = Literal["state", "history"]

_log = logging.getLogger("bunshin_gym")
_UNSEEN = nullcontext()


class Executor:
    """Runs the calls of rollouts.

    Args:
        cache: whether calls are answered from the tree.
        share: whether workspaces are forks of one prepared one.
        key: what makes two rollouts meet: "state", that later calls see the same, or "history", the same calls.
        group: how many rollouts of one task are expected at a time; above 1, snapshots are kept where `policy` says.
        audit: the share of hits that is run again and compared, 0 to 1.
        saved: a call tree on disk to go on with (a path: if there is one), by state only; `save` writes one.
        speculate: how many likely next calls may be made ahead of time, in forks, at once; 0: none.
        predict: names calls that may come next, with probabilities: see `speculate.Predict`.
        policy, tree, speculator, stats: in place of the usual ones.
        events: where all that is done is noted; None: nowhere.
        memory_budget: bytes, or "8G", for all that is held (see `budget`); who finds no room waits `memory_patience` s.

    Raises ValueError for an argument that is none of these, and for `saved` without a cache by state.
    """

    def __init__(
        self,
        *,
        cache: bool = True,
        share: bool = True,
        key: Key = "state",
        group: int = 1,
        audit: float = 0.01,
        speculate: int = 0,
        predict: Predict | None = None,
        snapshot_seconds: float = 0.2,
        policy: SnapshotPolicy | None = None,
        tree: Tree | None = None,
        speculator: Speculator | None = None,
        stats: Stats | None = None,
        events: Events | None = None,
        saved: TreeFile | str | os.PathLike[str] | None = None,
        memory_budget: str | int | None = None,
        memory_patience: float = 300.0,
    ) -> None:
        if key not in ("state", "history"):
            raise ValueError(f"key must be 'state' or 'history', not {key!r}")
        if not 0 <= audit <= 1:
            raise ValueError(f"audit must be a share of the hits between 0 and 1, not {audit!r}")
        if speculate < 0 or (speculate and not share):
            raise ValueError(f"speculate must be a number of drafts, and needs share=True, not {speculate!r}")
        self.cache = cache
        self.share = share
        self.key = key
        self.group = group
        self.tree = tree if tree is not None else Tree()
        self.stats = stats if stats is not None else Stats()
        self.events = self.stats.events = events
        self._digests = cache and key == "state"
        costs = Costs()
        self.ledger = Ledger(memory_budget, memory_patience, self.stats)
        self._materialiser = Materialiser(
            self.tree, self.stats, costs, self._discard, self.ledger, digests=self._digests
        )
        policy = policy if policy is not None else DefaultPolicy(snapshot_seconds)
        self.keeper = Keeper(self.tree, self.stats, policy, costs, self._discard, group=group)
        self.auditor = Auditor(self.tree, self._materialiser, self.stats, self._discard, audit if cache else 0.0)
        self._arrivals = Arrivals(self.tree, self._materialiser, self._discard, cache=cache)
        self.recall = Recall(self.tree, self.stats, saved, digests=self._digests)
        self.speculator = speculator or ready(speculate, predict, self._materialiser, self.tree, self.stats)
        self._flights = Flights()
        self._lock = threading.Lock()
        self._root_locks: dict[Hashable, threading.Lock] = {}
        self._forgotten: deque[Node] = deque()
        # Calls that siblings waited for, or that ran into their limits, in vain: nobody waits in vain for them again.
        self._unshared = Remembered()
        self._cut_short = Remembered()
        self._users = 0
        self._closed = False

    # -- rollouts: birth and death

    def open(self, key: Hashable, prepare: Prepare, stamp: Stamper | None = None, patient: bool = True) -> Rollout:
        """A new rollout at the root `key`. The first one prepares the workspace that all later ones are forks of.

        `stamp` says of the workspace that was prepared what answers below this root depend on; without it they are
        neither saved nor recalled. Not `patient`: it does not wait for memory. Raises what `prepare` raises, and
        TreeFileError; the next one then tries again.
        """
        self._sweep()
        with self._lock:
            if self._closed:
                raise WorkspaceError("cannot start a rollout: the executor is closed")
            root_lock = self._root_locks.setdefault(key, threading.Lock())
        root = self.tree.root(key)
        rollout = Rollout(root)
        rollout.patient = patient
        with self._noted("open", rollout), ExitStack() as stack:
            with self.stats.timed("wait", at=root.number):  # for the one that prepares
                stack.enter_context(root_lock)
            prepared = self._materialiser.prepare
            root.begun += 1
            if root not in prepared:
                prepared[root] = prepare
                try:
                    with self.ledger.room(rollout):
                        workspace = self._materialiser.fresh(root)
                        try:
                            self._discard(self.recall.plant(root, key, workspace, stamp))
                            if self.share:
                                self.keeper.seal_root(root, workspace)
                            rollout.adopt(workspace, root)
                        except BaseException:
                            workspace.close()
                            raise
                except BaseException:
                    prepared.pop(root, None)
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
        with self._noted("call", rollout):
            return self._answer(rollout, Edge(call, timeout))

    def _answer(self, rollout: Rollout, edge: Edge) -> ToolResult:
        """The six steps in their order."""
        if self.cache and not rollout.node.linked and not rollout.node.private:
            rollout.enter_again(self.tree)
            self._discard(self.tree.evict())
        edge = self.tree.same(rollout.node, edge)
        call = edge.call
        waited, failed = False, 0
        while self._may_share(rollout.node, edge):
            node = rollout.node
            own = edge in node.steps
            step = self.tree.match(node, edge, strict=strict(call))  # 1
            if step is not None:
                if not rollout.reaches(step.target):
                    break
                return self._hit(rollout, step, waited=waited, by_state=not own)
            if failed > 1 or edge in self._unshared:
                break
            flight, leading = self._flights.join(_where(node, strict=strict(call) or edge in self._cut_short), edge)
            if not leading:
                with self.stats.timed("wait", at=node.number):
                    landing = flight.wait(rollout)
                if landing is Landing.HANDED and flight.step is not None:
                    place = flight.take()
                    if flight.step.source is node:
                        return self._take_over(rollout, flight.step, place)
                    place.release()  # it came another way to this state: a later call may notice
                waited = landing is Landing.SHARED
                failed += landing is Landing.FAILED
                if landing in (Landing.HANDED, Landing.UNSHARED):
                    break
                continue
            with flight:
                if self.tree.match(node, edge, strict=strict(call)) is not None:
                    continue  # it landed between our look at the tree and our taking the lead
                return self._execute(rollout, edge, flight)
        return self._execute(rollout, edge)

    def shares(self, rollout: Rollout, call: ToolCall | None, timeout: float) -> bool:
        """Whether what the call gives here may be shared with siblings; without a call: what a verifier says here."""
        return self._may_share(rollout.node, None if call is None else Edge(call, timeout))

    def knows(self, rollout: Rollout, call: ToolCall, timeout: float) -> bool:
        """Whether the call would be answered from the tree, as things stand."""
        return self.shares(rollout, call, timeout) and self.tree.knows(
            rollout.node, Edge(call, timeout), strict=strict(call)
        )

    def hint(self, rollout: Rollout, text: str) -> None:
        """The policy's partial output, for the speculator."""
        self.speculator.hint(rollout, text)

    def _hit(self, rollout: Rollout, step: Step, *, waited: bool, by_state: bool) -> ToolResult:
        step.hits += 1
        self.stats.add(waits=int(waited), hits=int(not waited), saved_seconds=step.seconds)
        if by_state:
            self._discard(self.tree.evict())  # the step that was added for it counts, too
            if not waited:
                self.stats.add(hits_by_state=1, saved_by_state=step.seconds)
        rollout.node = step.target
        rollout.answer(step, "wait" if waited else "hit")
        self.auditor.consider(step)
        self.speculator.observe(rollout)  # 5
        return step.result

    def _take_over(self, rollout: Rollout, step: Step, place: Anchor) -> ToolResult:
        """A sibling's call was cut short while this one waited for it at the same node: it gets that, and a fork."""
        self.stats.add(waits=1, handed=1, saved_seconds=step.seconds)
        if step.target is rollout.node:
            place.release()
        else:
            rollout.follow(step, place)
        rollout.answer(step, "wait")
        self.speculator.observe(rollout)  # 5
        return step.result

    @at_work
    def _execute(self, rollout: Rollout, edge: Edge, flight: Flight | None = None) -> ToolResult:
        """Steps 2 to 5: the call is really run, perhaps while others wait for it."""
        self.stats.add(misses=1)
        node, aside = rollout.node, not self._may_share(rollout.node, edge)
        draft = self.speculator.take(rollout, edge)  # 2
        if draft is not None:
            self.stats.add(drafts=1)
            rollout.adopt(draft.workspace, draft.at, rollout.node)
            result = draft.result
        else:
            workspace = self._materialiser.bring(rollout, strict=aside or strict(edge.call))  # 3
            with self.stats.timed("run", at=rollout.node.number):
                result = workspace.call(edge.call, edge.timeout)
        if result.exit_reason is ExitReason.WORKSPACE_LOST:
            self.stats.add(lost=1)
            rollout.drop()
            return result
        self.stats.add(timeouts=int(result.exit_reason is ExitReason.TIMEOUT))
        whole = rollout.at is rollout.node  # its workspace has come here by its own history
        step = self._arrivals.enter(rollout, edge, result, aside=aside)  # 4
        rollout.answer(step, "run" if draft is None else "draft")
        if self.share:
            self.keeper.consider(rollout)
        if flight is not None:
            self._land(flight, rollout, step, hand=whole and step.source is node)
        self.speculator.observe(rollout)  # 5
        return result

    def _land(self, flight: Flight, rollout: Rollout, step: Step, *, hand: bool) -> None:
        """Say what those get who waited for the call. `hand`: whether it may be handed over at all."""
        cut_short = step.result.exit_reason in CUT_SHORT
        if step.linked and not step.aside:
            flight.land(Landing.SHARED)
            return
        if not (hand and cut_short and self._hand(flight, rollout, step)):
            flight.land(Landing.UNSHARED)
            self._unshared.add(step.edge)
        if cut_short:
            self._cut_short.add(step.edge)

    def _hand(self, flight: Flight, rollout: Rollout, step: Step) -> bool:
        """Give the state after a call that was cut short to those who waited at its node: it cannot be replayed."""
        node, workspace = step.target, rollout.workspace
        if node.private or not self.share or workspace is None:
            return False
        places = [self._place(node) for _ in range(flight.shut())]
        if places and node is not step.source and node.snapshot is None:
            try:
                self.keeper.attach(node, workspace)
            except WorkspaceError as error:
                _log.info("siblings that waited make a call again by themselves: %s", error)
                for place in places:
                    place.release()
                return False
        flight.hand(step, places)
        return True

    def materialise(self, rollout: Rollout) -> Workspace:
        """A live workspace for the rollout, at its node: its own, or a fork; and what is owed replayed in it.

        Raises WorkspaceLost where its own is dead or where there is no way back to its state; ForkError and
        WorkspaceError where a fork fails.
        """
        return self._materialiser.bring(rollout)

    def verify(self, rollout: Rollout, verifier: Callable[[Workspace], float], *, freeze: bool = False) -> float:
        """What `verifier` says of the rollout's state, in [0, 1]; it gets a workspace that is closed afterwards.

        With `freeze`, every process in there stands still before it looks. Siblings that end in the same state share
        the verdict, also those that ask for it at the same time. Raises TaskError where the verifier fails or says
        something else, WorkspaceError where something cannot be stopped, and as `materialise`.
        """
        self.stats.add(verified=1)
        self.speculator.leave(rollout)
        with self._noted("judge", rollout):
            return self._verdict(rollout, verifier, freeze)

    def _verdict(self, rollout: Rollout, verifier: Callable[[Workspace], float], freeze: bool) -> float:
        while self._may_share(rollout.node):
            known = _said(rollout.node, freeze)
            if known is not None:
                self.stats.add(verdicts_shared=1)
                return known
            flight, leading = self._flights.join(_where(rollout.node), "verdict", freeze)
            if not leading:
                with self.stats.timed("wait", at=rollout.node.number):
                    flight.wait(rollout)
                continue
            with flight:
                if _said(rollout.node, freeze) is None:
                    return self._judge(rollout, verifier, freeze)
        return self._judge(rollout, verifier, freeze)

    @at_work
    def _judge(self, rollout: Rollout, verifier: Callable[[Workspace], float], freeze: bool) -> float:
        workspace = self._materialiser.bring(rollout)
        node = rollout.node
        if freeze:
            with self.stats.timed("freeze"):
                workspace.freeze()
        try:
            with self.stats.timed("verify", at=node.number):
                verdict = float(verifier(workspace))
            if not 0.0 <= verdict <= 1.0:
                raise ValueError(f"it returned {verdict!r}, not a number in [0, 1]")
        except WorkspaceLost:
            raise
        except Exception as error:
            raise TaskError(f"the verifier failed: {type(error).__name__}: {error}") from error
        finally:
            rollout.drop()  # the verifier may have changed it: nobody is to run on in there
        if freeze:
            node.frozen_verdict = verdict
        else:
            node.verdict = verdict
        return verdict

    # -- states to come back to

    def keep(self, rollout: Rollout, *, live: bool = True) -> Place:
        """The rollout's state, as a place to resume from any number of times. The rollout goes on undisturbed.

        With `live` false the place is only a mark: no call will be made from there. Raises ForkError or WorkspaceLost
        where the state can neither be sealed nor replayed.
        """
        rollout.reclaim()
        place = self._place(rollout.node)
        if not live or place.node.snapshot is not None:
            return place
        try:
            if place.node.precarious and rollout.at is not rollout.node:  # what is owed can be paid only from here
                self._materialiser.bring(rollout, strict=True)
            if rollout.workspace is not None and rollout.at is rollout.node and self.share:
                self.keeper.attach(place.node, rollout.workspace)
            elif unreplayable(place.node):
                raise WorkspaceLost("cannot keep the state: it cannot be replayed, and there is no workspace to seal")
        except WorkspaceError as error:
            if unreplayable(place.node):
                place.release()
                raise
            _log.info("a state is kept without a snapshot and will be replayed: %s", error)
        return place

    def resume(self, place: Place) -> Rollout:
        """A new rollout at a place that was kept. Raises ValueError where that was released, or is another's."""
        if place.released or place.executor is not self:
            raise ValueError("cannot resume: the state was closed, or belongs to another environment")
        place.node.begun += 1
        # The rollout holds on to the place by itself until it has a workspace: the other holders may let go before.
        return Rollout(place.node, anchor=self._place(place.node))

    def _place(self, node: Node) -> Place:
        self._sweep()
        self.tree.pin(node)
        return Place(node, self)

    # -- the tree on disk

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write what is known by now to `path`, in place of what is there; None: to where `saved` was.

        Results, digests and verdicts; no snapshot, and nothing that is private to a rollout. Roots that were in `saved`
        and have not been opened are kept. Raises TreeFileError, and ValueError without a cache by state.
        """
        if self._closed:
            raise TreeFileError("cannot save the call tree: it is closed, and forgotten; save it before")
        self.recall.save(path)

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
            self.keeper.close()
            self._materialiser.prepare.clear()
        self.ledger.close()
        self.auditor.close()
        self.speculator.close()
        _close_all(self.tree.clear())

    # -- helpers, in the order of their use

    def _noted(self, move: str, rollout: Rollout) -> AbstractContextManager[object]:
        return self.events.move(move, rollout) if self.events is not None else _UNSEEN

    def _may_share(self, node: Node, edge: Edge | None = None) -> bool:
        if not self.cache or node.private:
            return False
        return edge is None or (not node.distrusts(edge) and cacheable(edge.call, node.root.given))

    def _sweep(self) -> None:
        """Unpin the places that were thrown away without being released."""
        while self._forgotten:
            self._unpin(self._forgotten.popleft())

    def _unpin(self, node: Node) -> None:
        self._discard(self.tree.unpin(node))

    def _discard(self, snapshots: list[Closable]) -> None:
        if snapshots:
            self.stats.add(snapshots_evicted=len(snapshots))
            if self.events is not None:
                self.events.add("evict", note=f"{len(snapshots)} snapshots")
            _close_all(snapshots)


def _said(node: Node, frozen: bool) -> float | None:
    return node.frozen_verdict if frozen else node.verdict


def _where(node: Node, *, strict: bool = False) -> object:
    """What siblings have in common that may share a call in flight: the state, or only the history."""
    return node if strict or node.state is None else node.state


def _close_all(snapshots: list[Closable]) -> None:
    for snapshot in snapshots:
        snapshot.close()
