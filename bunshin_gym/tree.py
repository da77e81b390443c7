"""The call tree: which states are known, which call leads from one to the next, and what it gave.

A *node* is one history: a root, and the calls that changed something since. A *state* is what later calls can see; all
nodes with the same digest are of one state, and know what any of them was answered. A *step* is a call that was made at
a node: what it gave, and the node it led to. A call that changed nothing at all leads back to the node it was made at.

So a call is looked up among the steps of its node, and then among those of its state. A call that can notice what a
digest leaves out (`strict`: modification times, say) is looked up at its node only. An answer found at another node of
the state gives the asker a node of its own, below its own: its history stays its own.

Without digests (`key="history"`) no node has a state, and only the exact calls that led somewhere count.

The tree knows no processes and does no I/O: a node may hold a *snapshot*, which to the tree is just something to keep
and to hand back to be closed. Every method is safe from any thread. Snapshots the tree lets go of are returned, and the
caller closes them: outside the tree's lock, since closing may take time.

What a call gave that depends on more than the state (it told the time, it was cut short by its time limit) is nobody
else's: such a step is *aside*, and never looked up. Where it led is a node like any other: the one it was made at where
it changed nothing, or one of a state that other histories may come to. But nobody can go there again by the same
calls: it and all below it are *precarious*, and reached from a workspace or snapshot below that call only.

A node is *linked* while it can be found from its root. Nodes that are *private* to one rollout (something there goes on
by itself, or its state cannot be told) are never linked; they work in all other respects.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from bunshin_gym.leading import contradicts, leads_to, meet
from bunshin_gym.node import Closable, Edge, Node, State, Step
from bunshin_gym.state import StateDigest
from bunshin_gym.subtree import KeptState
from bunshin_gym.tools import ToolResult

__all__ = ["Closable", "Edge", "Node", "State", "Step", "Tree"]

# What a step takes in memory beside its result, roughly: it counts for steps that share theirs, too.
_STEP_BYTES = 512


class Tree:
    """Roots by key, and everything below them.

    `max_bytes` bounds what the steps take: the end of a branch that was used longest ago goes first. `max_snapshots`
    bounds the snapshots of nodes that nobody pins: those of the least `value` go first.
    """

    def __init__(self, max_bytes: int = 256 << 20, max_snapshots: int = 16) -> None:
        self.max_bytes = max_bytes
        self.max_snapshots = max_snapshots
        self.value: Callable[[Node], float] = lambda node: 0.0  # of a node's snapshot
        self._lock = threading.RLock()
        self._roots: dict[Hashable, Node] = {}
        self._states: dict[tuple[Node, bytes], State] = {}
        self._steps = 0  # linked ones
        self._uses = 0
        # Ends of branches by when they were last used. Used, grown or dropped since: seen to when they come up.
        self._ends: list[tuple[int, int, Step]] = []
        self._held: OrderedDict[Node, None] = OrderedDict()  # nodes with a snapshot, likewise
        self._bytes = 0

    # -- finding

    def root(self, key: Hashable) -> Node:
        """The root of that key, made where there is none."""
        with self._lock:
            root = self._roots.get(key)
            if root is None:
                root = self._roots[key] = Node.root_of(key)
            return root

    def same(self, node: Node, edge: Edge) -> Edge:
        """The call as it was made before, where it was: an equal object of which more is known already."""
        step = node.steps.get(edge)  # looking into one table needs no lock
        if step is None and node.state is not None:
            step = node.state.steps.get(edge)
        return edge if step is None else step.edge

    def match(self, node: Node, edge: Edge, *, strict: bool = False) -> Step | None:
        """What the call gives at `node`, if it is known: to the node itself or, unless `strict`, to its state.

        What was found by its state is a new step of the node: the caller asks `evict` for what has to go for it.
        """
        with self._lock:
            step = node.steps.get(edge)
            if step is not None and not (strict and step.recalled) and self._leads_on(step):
                self._use(step)
                return step
            state = node.state
            if strict or state is None or not node.linked or edge in state.volatile:
                return None
            found = state.steps.get(edge)
            if found is None or found.target.state is None or not self._leads_on(found):
                return None
            self._use(found)
            return self._alias(node, found)

    def knows(self, node: Node, edge: Edge, *, strict: bool = False) -> bool:
        """Whether `match` would find it. Changes nothing."""
        with self._lock:
            step = node.steps.get(edge)
            if step is not None:
                return not (strict and step.recalled)
            state = node.state
            return not strict and state is not None and node.linked and edge in state.steps

    def nearest(
        self, node: Node, *, strict: bool = False, notices: Callable[[Step], bool] = lambda step: False
    ) -> tuple[Node, Node] | None:
        """The closest snapshot to start from: the node that holds it, pinned (the caller unpins it), and where it is.

        The second is `node` or an ancestor of it. Unless `strict`, the first may be another node of the second's state;
        but not above a step that `notices` which history it is made in.
        """
        with self._lock:
            at: Node | None = node
            while at is not None:
                holder = at if at.snapshot is not None else None
                if holder is None and not strict and at.state is not None:
                    holder = next(iter(at.state.held), None)
                if holder is not None:
                    self._held.move_to_end(holder)
                    holder.pins += 1
                    return holder, at
                strict = strict or (at.step is not None and notices(at.step))
                at = at.parent
            return None

    def above(self, node: Node) -> Node | None:
        """The closest node of its history, itself too, of whose state there is a snapshot other than its own."""
        with self._lock:
            at: Node | None = node
            while at is not None:
                held = at.state.held if at.state is not None else (at,) if at.snapshot is not None else ()
                if any(holder is not node for holder in held):
                    return at
                at = at.parent
            return None

    # -- growing

    def revive(self, node: Node) -> Node | None:
        """Link a node again that was evicted while somebody stood there; the caller asks `evict` for what has to go.

        Returns the node where that somebody then stands: another one where the same calls have been made anew since.
        None where there is no way back: a call on the way is not trusted any more, or something else is there now.
        """
        with self._lock:
            way: list[Step] = []
            at = node
            while not at.linked and at is not at.root:
                if at.private or at.step is None or at.parent is None:
                    return None
                way.append(at.step)
                at = at.parent
            for step in reversed(way):
                known = at.steps.get(step.edge)
                if known is not None:
                    if known.target is not step.target and not meet(known, step):
                        return None
                    at = known.target
                elif step.source is not at or at.distrusts(step.edge):
                    return None
                else:
                    self._link(step, step.result.size)
                    self._meet_again(step.target)
                    at = step.target
            return at

    def settle(self, node: Node, digest: StateDigest) -> None:
        """What the state at `node` is. Once said, it stays."""
        with self._lock:
            if node.strict is None:
                node.strict = digest.strict
                if node.state is not None and node.linked:
                    node.state.exact.setdefault(digest.strict, node)
            if node.state is None and node.linked:
                self._enter(node, digest)

    def insert(
        self,
        node: Node,
        edge: Edge,
        result: ToolResult,
        digest: StateDigest | None = None,
        *,
        unchanged: bool = False,
        private: bool = False,
        aside: bool = False,
    ) -> tuple[Step, list[Closable]]:
        """A call that was made at `node`: what it gave, and the state it led to, where that is known.

        `unchanged`: the workspace it was made in is in all as it was before. What an `aside` call gave is found by
        nobody, but where it led may be met: by who is led there himself, and as a state. A private call is an aside
        below which nothing is shared. A call that is known already must lead to the same state: if it does not, it is
        trusted no more. Returns the step, and what was evicted.
        """
        with self._lock:
            if private or node.private:
                return Step(edge, result, node, Node(node, private=True, precarious=True), aside=True), []
            if aside:
                return self._insert_aside(node, edge, result, digest, unchanged=unchanged)
            known = node.steps.get(edge)
            target = node if unchanged else self._same(node, digest) if digest is not None else None
            gone: list[Closable] = []
            if known is not None and not known.recalled:
                if digest is None or known.target is target or not contradicts(known, digest):
                    return known, []
                # The same call in the same state has led to another one: its record is worth nothing from now on.
                gone = self.forget(known)
                step, more = self._insert_aside(node, edge, result, digest, unchanged=unchanged)
                return step, [*gone, *more]
            if known is not None:
                if leads_to(known, target, digest):
                    self._confirm(known, result, digest)
                    return known, []
                gone = self._unlink(known)
            step = Step(edge, result, node, target or Node(node))
            self._link(step, result.size)
            if digest is not None and step.owns:
                step.target.strict = digest.strict
                if step.target.linked:
                    self._enter(step.target, digest)
            return step, [*gone, *self.evict()]

    def follow(self, node: Node, step: Step) -> tuple[Step, list[Closable]]:
        """The same call at another node of the state: known to lead to the same state, and to give the same."""
        with self._lock:
            known = node.steps.get(step.edge)
            gone: list[Closable] = []
            if known is not None and known.recalled:
                if meet(known, step):
                    self._confirm(known, step.result, None)
                else:
                    gone, known = self._unlink(known), None
            return (known, []) if known is not None else (self._alias(node, step), [*gone, *self.evict()])

    def attach(self, node: Node, snapshot: Closable) -> list[Closable]:
        """Keep a snapshot at `node`. Returns those that have to go: perhaps this one, where there is one already."""
        with self._lock:
            if node.snapshot is not None:
                return [snapshot]
            node.snapshot = snapshot
            self._held[node] = None
            if node.state is not None and node.linked:
                node.state.held[node] = None
            return self.evict()

    # -- holding

    def pin(self, node: Node) -> None:
        """Keep the node's snapshot, and one it is yet to get, until `unpin`."""
        with self._lock:
            node.pins += 1

    def unpin(self, node: Node) -> list[Closable]:
        with self._lock:
            node.pins -= 1
            # Nobody comes to a precarious node but those who were there, or held on to it.
            return self.evict() if node.linked and not node.precarious else self._release(node)

    # -- shrinking

    def forget(self, step: Step) -> list[Closable]:
        """The call gave something else this time: it is not trusted again, here or anywhere in this state."""
        with self._lock:
            node, edge = step.source, step.edge
            node.volatile |= {edge}
            gone: list[Closable] = []
            if node.state is not None:
                node.state.volatile |= {edge}
                for other in list(node.state.nodes):
                    if edge in other.steps:
                        gone += self._unlink(other.steps[edge])
            if step.linked:
                gone += self._unlink(step)
            return gone

    def evict(self) -> list[Closable]:
        """Bring the tree within its bounds."""
        with self._lock:
            gone: list[Closable] = []
            while self._bytes > self.max_bytes and self._ends:
                used, _, step = heapq.heappop(self._ends)
                step.queued = False
                if not step.linked or not step.ends:
                    continue  # what leads to others goes after them, not with them
                if step.used != used:
                    self._queue(step)
                    continue
                gone += self._unlink(step)
            surplus = len(self._held) - self.max_snapshots
            if surplus > 0:
                unpinned = [node for node in self._by_value() if node.pins == 0]
                for node in unpinned[: max(0, len(unpinned) - self.max_snapshots)]:
                    gone += self._release(node)
            return gone

    def snapshots(self) -> list[Closable]:
        """All that are kept, that of the least value first."""
        with self._lock:
            return [node.snapshot for node in self._by_value() if node.snapshot is not None]

    def shed(self, spare: Callable[[Node, Closable], bool]) -> list[Closable]:
        """Let go of the snapshot of the least value of those that nobody pins and that need not be spared, if any."""
        with self._lock:
            for node in self._by_value():
                if node.pins == 0 and node.snapshot is not None and not spare(node, node.snapshot):
                    return self._release(node)
            return []

    def clear(self) -> list[Closable]:
        """Forget everything, pinned or not."""
        with self._lock:
            gone = [node.snapshot for node in self._held if node.snapshot is not None]
            for node in self._held:
                node.snapshot = None
                if node.state is not None:
                    node.state.held.clear()
            self._held.clear()
            self._ends.clear()
            self._steps = 0
            self._roots.clear()
            self._states.clear()
            self._bytes = 0
            return gone

    # -- looking

    @property
    def size(self) -> tuple[int, int, int]:
        """Linked steps, the bytes they take, snapshots."""
        with self._lock:
            return self._steps, self._bytes, len(self._held)

    @property
    def states(self) -> int:
        """How many different states are known."""
        with self._lock:
            return len(self._states)

    # -- helpers, under the lock

    def _by_value(self) -> list[Node]:
        """The nodes with a snapshot: that of the least value first, among equals the one used longest ago."""
        return sorted(self._held, key=self.value)

    def _insert_aside(
        self, node: Node, edge: Edge, result: ToolResult, digest: StateDigest | None, *, unchanged: bool
    ) -> tuple[Step, list[Closable]]:
        there = node if unchanged else self._same(node, digest) if digest is not None else None
        if there is not None:  # it led to what is there without it: nobody has to find it
            return Step(edge, result, node, there, aside=True), []
        target = Node.of_its_own(node)
        step = Step(edge, result, node, target, aside=True)
        self._link(step, result.size)
        if digest is not None:
            target.strict = digest.strict
            if target.linked:
                self._enter(target, digest)
        return step, self.evict()

    def _enter(self, node: Node, digest: StateDigest | KeptState) -> None:
        key = (node.root, digest.loose)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(digest.loose, digest.parts)
        node.state = state
        state.nodes[node] = None
        if node.strict is not None:
            state.exact.setdefault(node.strict, node)
        if node.snapshot is not None:
            state.held[node] = None
        for step in node.steps.values():
            state.learn(step)
        state.volatile |= node.volatile

    def _meet_again(self, node: Node) -> None:
        """A node that is to be found again is one of its state again, which others may know by now."""
        if node.state is None:
            return
        state = self._states.setdefault((node.root, node.state.loose), node.state)
        node.state = state
        state.nodes[node] = None
        if node.strict is not None:
            state.exact.setdefault(node.strict, node)
        if node.snapshot is not None:
            state.held[node] = None

    def _same(self, node: Node, digest: StateDigest) -> Node | None:
        """The node, `node` or another one, from which nothing at all differs."""
        if digest.strict == node.strict:
            return node
        state = self._states.get((node.root, digest.loose)) if node.linked else None
        return state.exact.get(digest.strict) if state is not None else None

    def _confirm(self, known: Step, result: ToolResult, digest: StateDigest | None) -> None:
        """A recalled call has been made here, too, and leads where it led: what it gave now is what it gives."""
        self._bytes += result.size + _STEP_BYTES - known.size
        known.size = result.size + _STEP_BYTES
        known.result, known.recalled = result, False
        if digest is not None and known.owns:
            self.settle(known.target, digest)

    def _leads_on(self, step: Step) -> bool:
        """Whether the step's target is still to be found: if not, neither is the step."""
        if not step.target.linked:
            self._unlink(step)  # it does not own its target, so there is nothing to be handed back
        return step.target.linked

    def _alias(self, node: Node, found: Step) -> Step:
        step = Step(found.edge, found.result, node, node if found.target is found.source else Node(node))
        self._link(step, 0)
        if step.owns and step.target.linked and found.target.state is not None:
            step.target.state = found.target.state
            step.target.state.nodes[step.target] = None
        return step

    def _link(self, step: Step, size: int) -> None:
        """Make a step to be found from its node. Below a branch that was dropped nothing is, but one goes on there."""
        node = step.source
        if not node.linked:
            return
        step.linked = step.target.linked = True
        step.size = size + _STEP_BYTES
        if step.aside:
            node.asides[step] = None
        else:
            node.steps[step.edge] = step
            if node.state is not None and step.edge not in node.state.volatile:
                node.state.learn(step)
        self._steps += 1
        self._bytes += step.size
        self._use(step)
        self._queue(step)

    def _use(self, step: Step) -> None:
        self._uses += 1
        step.used = self._uses

    def _queue(self, step: Step) -> None:
        """Have the end of a branch among those that may go."""
        if step.queued:
            return
        if len(self._ends) > 2 * self._steps + 64:  # most are of branches that were dropped: let go of those
            self._ends = [end for end in self._ends if end[2].linked]
            heapq.heapify(self._ends)
        step.queued = True
        heapq.heappush(self._ends, (step.used, id(step), step))

    def _unlink(self, step: Step) -> list[Closable]:
        if not step.linked:
            return []
        gone: list[Closable] = []
        branch = [step]
        while branch:
            at = branch.pop()
            if not at.linked:
                continue
            at.linked = False
            if at.aside:
                at.source.asides.pop(at, None)
            else:
                at.source.steps.pop(at.edge, None)
                if at.source.state is not None:
                    at.source.state.unlearn(at)
            self._steps -= 1
            self._bytes -= at.size
            before = at.source.step
            if before is not None and before.linked and before.ends:
                self._queue(before)
            if at.owns:
                branch += (*at.target.steps.values(), *at.target.asides)
                gone += self._drop(at.target)
        return gone

    def _drop(self, node: Node) -> list[Closable]:
        """A node that is not to be found any more."""
        node.linked = False
        state = node.state
        if state is not None:
            state.nodes.pop(node, None)
            state.held.pop(node, None)
            if node.strict is not None and state.exact.get(node.strict) is node:
                del state.exact[node.strict]
            if not state.nodes:
                self._states.pop((node.root, state.loose), None)
        return self._release(node)

    def _release(self, node: Node) -> list[Closable]:
        if node.pins > 0 or node.snapshot is None:
            return []
        snapshot, node.snapshot = node.snapshot, None
        self._held.pop(node, None)
        if node.state is not None:
            node.state.held.pop(node, None)
        return [snapshot]
