"""What the call tree is made of: nodes, the states they are of, and the steps between them. Plain data.

Only the tree writes them, under its lock. Whoever holds a node, step or state may read it at any time.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from bunshin_gym.frozen import NOTHING_GIVEN, Given
from bunshin_gym.state import DIGEST_SIZE, combine
from bunshin_gym.tools import ToolCall, ToolResult

__all__ = ["Closable", "Edge", "Node", "State", "Step"]

_numbers = itertools.count(1)


class Closable(Protocol):
    """All the tree knows of a snapshot."""

    def close(self) -> None: ...


_NO_CALLS: frozenset[Edge] = frozenset()  # a set of its own for each node would be one more thing to be collected


@dataclass(frozen=True)
class Edge:
    """A call that can be made. Two edges are equal when call and time limit (seconds) are."""

    call: ToolCall
    timeout: float

    @cached_property
    def key(self) -> bytes:
        """The call and its limit as bytes, the same in every process."""
        return combine(self.call.key(), repr(float(self.timeout)).encode())


@dataclass(eq=False, slots=True)
class Step:
    """A call that was made at `source`: what it gave, and where it led.

    Back to `source`, where it changed nothing; or to another node that is there already, where it changed things back.
    `recalled`: it was made in another process, whose files had other times; nobody has made it in this one yet.
    """

    edge: Edge
    result: ToolResult
    source: Node
    target: Node
    aside: bool = False  # what it gave is nobody else's: it is never looked up, but where it led may be met
    linked: bool = False
    size: int = 0  # bytes it counts for
    hits: int = 0
    used: int = 0  # when it was last used, as the tree counts
    queued: bool = False  # whether it is among those that the tree may let go of
    recalled: bool = False
    number: int = field(default_factory=_numbers.__next__)  # its own among all nodes and steps of this program

    def __post_init__(self) -> None:
        if self.target.step is None and self.target is not self.target.root:
            self.target.step = self

    @property
    def owns(self) -> bool:
        """Whether its target is there because of it."""
        return self.target.step is self

    @property
    def ends(self) -> bool:
        """Whether nothing is known beyond it."""
        return not (self.owns and (self.target.steps or self.target.asides))

    @property
    def seconds(self) -> float:
        """What the call took."""
        return self.result.duration

    @property
    def private(self) -> bool:
        return self.target.private


@dataclass(eq=False, slots=True)
class State:
    """What later calls can see at all of its `nodes`: `loose` is the digest of it.

    `parts` of that digest are known from the first time. `exact`: a node for each strict digest. `steps`: what a call
    gave at whichever of them made it first; `others`: the same calls at further nodes. `volatile`: calls that gave
    something else another time. `verdict`: what the task's verifier says here, once it has; `frozen_verdict`: what it
    says after all that runs here was stopped, which is something else where a job is still at work. `held`: those of
    the nodes that have a snapshot.
    """

    loose: bytes
    parts: Mapping[str, bytes] = field(default_factory=dict)
    nodes: dict[Node, None] = field(default_factory=dict)
    exact: dict[bytes, Node] = field(default_factory=dict)
    steps: dict[Edge, Step] = field(default_factory=dict)
    volatile: frozenset[Edge] = _NO_CALLS
    verdict: float | None = None
    frozen_verdict: float | None = None
    held: dict[Node, None] = field(default_factory=dict)
    others: dict[Edge, dict[Step, None]] = field(default_factory=dict)

    def learn(self, step: Step) -> None:
        """A step at one of the nodes."""
        first = self.steps.setdefault(step.edge, step)
        if first is not step:
            self.others.setdefault(step.edge, {})[step] = None

    def unlearn(self, step: Step) -> None:
        """It is not to be found any more; another one of the same call takes its place."""
        others = self.others.get(step.edge, {})
        others.pop(step, None)
        if self.steps.get(step.edge) is step:
            del self.steps[step.edge]
            if others:
                self.steps[step.edge] = next(iter(others))
                del others[self.steps[step.edge]]
        if not others:
            self.others.pop(step.edge, None)


@dataclass(eq=False, slots=True)
class Node:
    """A history: `step` is the call that led here, from `parent`; both are None at a root.

    `strict` is the digest of all that a call could notice at all, where it was taken: of no use for comparing
    histories, but while it stays the same, nothing has changed. `private`: nothing below it is shared with anybody.
    `precarious`: a call on the way here would not lead here again. `asides`: calls that were made here and led on, but
    whose results are nobody else's.
    """

    parent: Node | None = None
    private: bool = False
    precarious: bool = False
    step: Step | None = None
    state: State | None = None
    strict: bytes | None = None
    steps: dict[Edge, Step] = field(default_factory=dict)
    asides: dict[Step, None] = field(default_factory=dict)
    volatile: frozenset[Edge] = _NO_CALLS
    snapshot: Closable | None = None
    pins: int = 0
    linked: bool = False
    begun: int = 0  # rollouts that started here
    number: int = field(default_factory=_numbers.__next__)  # its own among all nodes and steps of this program
    root: Node = field(init=False, repr=False)
    given: Given = NOTHING_GIVEN  # of a root: what calls below it may look at
    _verdict: float | None = None
    _frozen_verdict: float | None = None
    _ident: bytes | None = None

    def __post_init__(self) -> None:
        self.root = self if self.parent is None else self.parent.root
        self.precarious = self.precarious or (self.parent is not None and self.parent.precarious)

    @classmethod
    def root_of(cls, key: Hashable) -> Node:
        root = cls(linked=True)
        root._ident = combine(b"root", repr(key).encode())
        return root

    @classmethod
    def of_its_own(cls, parent: Node) -> Node:
        """Where a call has led that would not lead there again. It is named like no other until its state is known."""
        node = cls(parent, precarious=True)
        node._ident = node.strict = secrets.token_bytes(DIGEST_SIZE)
        return node

    @property
    def ident(self) -> bytes:
        """A name for where a call is made from, equal where later calls see the same: the state's, or the history's."""
        unnamed, node = list[Node](), self
        while node.state is None and node._ident is None:
            unnamed.append(node)
            if node.parent is None or node.step is None:
                break
            node = node.parent
        for node in reversed(unnamed):
            if node.parent is None or node.step is None:
                node._ident = combine(b"root", repr(id(node)).encode())
            else:
                node._ident = combine(node.parent._name, node.step.edge.key)
        return self._name

    @property
    def _name(self) -> bytes:
        return self.state.loose if self.state is not None else self._ident or b""

    @property
    def exactly(self) -> bytes:
        """A name for where a call is made from, for calls that can notice what a digest of the state leaves out."""
        node, way = self, list[bytes]()
        while node.strict is None and node.parent is not None and node.step is not None:
            way.append(node.step.edge.key)
            node = node.parent
        return combine(node.ident, node.strict or b"", *reversed(way))

    def distrusts(self, edge: Edge) -> bool:
        """Whether the call gave something else another time, here or anywhere in this state."""
        return edge in self.volatile or (self.state is not None and edge in self.state.volatile)

    def descends(self, other: Node) -> bool:
        """Whether it is `other`, or below it."""
        node: Node | None = self
        while node is not None and node is not other:
            node = node.parent
        return node is other

    @property
    def edge(self) -> Edge | None:
        return self.step.edge if self.step is not None else None

    @property
    def result(self) -> ToolResult | None:
        return self.step.result if self.step is not None else None

    @property
    def seconds(self) -> float:
        """What the call that led here took."""
        return self.step.seconds if self.step is not None else 0.0

    @property
    def verdict(self) -> float | None:
        """What the task's verifier says here, once it has: of this node or any other of its state."""
        return self.state.verdict if self.state is not None and self.state.verdict is not None else self._verdict

    @verdict.setter
    def verdict(self, value: float) -> None:
        self._verdict = value
        if self.state is not None:
            self.state.verdict = value

    @property
    def frozen_verdict(self) -> float | None:
        """The same of a workspace that was frozen before the verifier looked."""
        shared = self.state.frozen_verdict if self.state is not None else None
        return shared if shared is not None else self._frozen_verdict

    @frozen_verdict.setter
    def frozen_verdict(self, value: float) -> None:
        self._frozen_verdict = value
        if self.state is not None:
            self.state.frozen_verdict = value

    def path_from(self, ancestor: Node) -> list[Step]:
        """The steps that led from `ancestor` to here, in order. Raises ValueError where it is none."""
        path: list[Step] = []
        node = self
        while node is not ancestor:
            if node.parent is None or node.step is None:
                raise ValueError("not an ancestor")
            path.append(node.step)
            node = node.parent
        return path[::-1]
