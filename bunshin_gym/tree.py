"""The call tree: which states are known, which call leads from one to the next, and what it gave.

A node is a state; an edge is a call with all that changes its meaning (tool, exact arguments, time limit). Nodes are
identified by the exact calls that led to them from a root (`key="history"`). The tree knows no processes and does no
I/O: a node may hold a *snapshot*, which to the tree is just something to keep and to hand back to be closed.

Every method is safe from any thread. Snapshots the tree lets go of are returned, and the caller closes them: outside
the tree's lock, since closing may take time.

A node is *linked* while it can be found from its parent. Nodes that are private to one rollout (below a call that
depends on more than the state) are never linked; they work in all other respects.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from bunshin_gym.tools import ToolCall, ToolResult

__all__ = ["Edge", "Node", "Tree"]


class Closable(Protocol):
    """All the tree knows of a snapshot."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Edge:
    """A call from a state. Two edges are equal when call and time limit (seconds) are."""

    call: ToolCall
    timeout: float


@dataclass(eq=False)
class Node:
    """A state. `edge` and `result` tell how it was reached and what that gave; both are None at a root.

    `volatile` holds the calls that turned out to give something else each time. `verdict` is what the task's verifier
    said in this state, once it has.
    """

    parent: Node | None = None
    edge: Edge | None = None
    result: ToolResult | None = None
    private: bool = False
    children: dict[Edge, Node] = field(default_factory=dict)
    volatile: set[Edge] = field(default_factory=set)
    snapshot: Closable | None = None
    pins: int = 0
    linked: bool = False
    verdict: float | None = None

    @property
    def seconds(self) -> float:
        """What its call took."""
        return self.result.duration if self.result is not None else 0.0

    @property
    def root(self) -> Node:
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def path_from(self, ancestor: Node) -> list[Node]:
        """The nodes below `ancestor` down to this one, in order."""
        path: list[Node] = []
        node = self
        while node is not ancestor:
            path.append(node)
            if node.parent is None:
                raise ValueError("not an ancestor")
            node = node.parent
        return path[::-1]


class Tree:
    """Roots by key, and everything below them.

    `max_bytes` bounds the results kept: the branch that was used longest ago goes first. `max_snapshots` bounds the
    snapshots of nodes that nobody pins.
    """

    def __init__(self, max_bytes: int = 256 << 20, max_snapshots: int = 16) -> None:
        self.max_bytes = max_bytes
        self.max_snapshots = max_snapshots
        self._lock = threading.RLock()
        self._roots: dict[Hashable, Node] = {}
        self._recent: OrderedDict[Node, None] = OrderedDict()  # linked nodes, the one used longest ago first
        self._held: OrderedDict[Node, None] = OrderedDict()  # nodes with a snapshot, likewise
        self._bytes = 0

    # -- finding

    def root(self, key: Hashable) -> Node:
        """The root of that key, made where there is none."""
        with self._lock:
            return self._roots.setdefault(key, Node(linked=True))

    def match(self, node: Node, edge: Edge) -> Node | None:
        """The state the call leads to from `node`, if it is known."""
        with self._lock:
            child = node.children.get(edge)
            if child is not None:
                self._recent.move_to_end(child)
            return child

    def nearest(self, node: Node) -> Node | None:
        """`node` or its closest ancestor with a snapshot, pinned: the caller unpins it."""
        with self._lock:
            at: Node | None = node
            while at is not None and at.snapshot is None:
                at = at.parent
            if at is not None:
                self._held.move_to_end(at)
                at.pins += 1
            return at

    # -- growing

    def insert(self, node: Node, edge: Edge, result: ToolResult, *, private: bool) -> tuple[Node, list[Closable]]:
        """The state a call led to from `node`; a private one is found by nobody else. Returns what was evicted, too."""
        private = private or node.private
        with self._lock:
            known = node.children.get(edge)
            if known is not None and not private:
                return known, []
            child = Node(node, edge, result, private)
            if private or not node.linked:
                # Below a branch that was dropped nothing can be found, but whoever stands there goes on.
                return child, []
            child.linked = True
            node.children[edge] = child
            self._recent[child] = None
            self._bytes += result.size
            return child, self.evict()

    def attach(self, node: Node, snapshot: Closable) -> list[Closable]:
        """Keep a snapshot at `node`. Returns those that have to go: perhaps this one, where there is one already."""
        with self._lock:
            if node.snapshot is not None:
                return [snapshot]
            node.snapshot = snapshot
            self._held[node] = None
            return self.evict()

    # -- holding

    def pin(self, node: Node) -> None:
        """Keep the node's snapshot, and one it is yet to get, until `unpin`."""
        with self._lock:
            node.pins += 1

    def unpin(self, node: Node) -> list[Closable]:
        with self._lock:
            node.pins -= 1
            return self.evict() if node.linked else self._release(node)

    # -- shrinking

    def forget(self, node: Node) -> list[Closable]:
        """Drop the branch that begins with `node`: its call gave something else this time, and is not trusted again."""
        with self._lock:
            if node.parent is not None and node.edge is not None:
                node.parent.volatile.add(node.edge)
            return self._unlink(node)

    def evict(self) -> list[Closable]:
        """Bring the tree within its bounds."""
        with self._lock:
            gone: list[Closable] = []
            while self._bytes > self.max_bytes and self._recent:
                gone += self._unlink(next(iter(self._recent)))
            unpinned = [node for node in self._held if node.pins == 0]
            for node in unpinned[: max(0, len(unpinned) - self.max_snapshots)]:
                gone += self._release(node)
            return gone

    def clear(self) -> list[Closable]:
        """Forget everything, pinned or not."""
        with self._lock:
            gone = [node.snapshot for node in self._held if node.snapshot is not None]
            for node in self._held:
                node.snapshot = None
            self._held.clear()
            self._recent.clear()
            self._roots.clear()
            self._bytes = 0
            return gone

    @property
    def size(self) -> tuple[int, int, int]:
        """Linked nodes, bytes of results, snapshots."""
        with self._lock:
            return len(self._recent), self._bytes, len(self._held)

    def _unlink(self, node: Node) -> list[Closable]:
        if not node.linked:
            return []
        if node.parent is not None and node.edge is not None:
            node.parent.children.pop(node.edge, None)
        gone: list[Closable] = []
        branch = [node]
        while branch:
            at = branch.pop()
            branch += at.children.values()
            at.children.clear()
            at.linked = False
            self._recent.pop(at, None)
            self._bytes -= at.result.size if at.result is not None else 0
            gone += self._release(at)
        return gone

    def _release(self, node: Node) -> list[Closable]:
        """Let go of the node's snapshot unless it is pinned."""
        if node.pins > 0 or node.snapshot is None:
            return []
        snapshot, node.snapshot = node.snapshot, None
        self._held.pop(node, None)
        return [snapshot]
