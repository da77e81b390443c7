"""One draft: a call that is made ahead of time in a fork, and what becomes of it.

    PROPOSED -> BEGUN -> READY -> ADOPTED
        |         |        |
        +---------+--------+----> SQUASHED

A worker of the speculator takes it from PROPOSED to READY; a rollout that makes the call adopts it, also while it is
still under way: it then waits, and what it waits for runs in the background no more. The fork belongs to a rollout of
its own, the *scout*, until it is adopted.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from dataclasses import dataclass, field

from bunshin_gym.errors import BunshinError, ForkError, WorkspaceError
from bunshin_gym.looks import strict
from bunshin_gym.materialise import Materialiser
from bunshin_gym.rollout import Rollout
from bunshin_gym.speculate.worth import Worth
from bunshin_gym.stats import Stats
from bunshin_gym.tools import ExitReason, ToolResult
from bunshin_gym.tree import Edge, Node
from bunshin_gym.workspace import Snapshot, Workspace

__all__ = ["Phase", "Run", "Stand"]

# How a call ends that is worth something: a limit it met may have been nearer for it than for a rollout's own call.
_ADOPTABLE = (ExitReason.EXITED, ExitReason.SIGNALED, ExitReason.SHELL_EXITED)


class Phase(enum.Enum):
    PROPOSED = "proposed"
    BEGUN = "begun"
    READY = "ready"
    ADOPTED = "adopted"
    SQUASHED = "squashed"


@dataclass(eq=False)
class Stand:
    """A rollout at a node, while its policy has the word. `snapshot`: of its workspace, made for the first draft."""

    rollout: Rollout
    node: Node
    timeout: float  # seconds the next call may take, as far as can be known: what the last one might
    text: str = ""
    left: bool = False
    snapshot: Snapshot | None = None
    sealing: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Let go of the snapshot. Nothing is forked of it afterwards."""
        with self.sealing:
            self.left = True
            snapshot, self.snapshot = self.snapshot, None
        if snapshot is not None:
            snapshot.close()


@dataclass(eq=False)
class Run:
    """A draft. `gain`: seconds it is expected to win. `taker`: the rollout that waits for it, or has it.

    `phase`, `taker` are guarded by the speculator's lock. `seconds`: what it took; `owed`: of these, what calls took
    that had to be made up for first.
    """

    stand: Stand
    edge: Edge
    gain: float
    phase: Phase = Phase.PROPOSED
    taker: Rollout | None = None
    result: ToolResult | None = None
    at: Node | None = None
    seconds: float = 0.0
    owed: float = 0.0
    in_background: bool = False
    scout: Rollout = field(init=False)
    _urgency: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.scout = Rollout(self.stand.node)
        self.scout.patient = False

    # -- the worker's side

    def perform(self, materialiser: Materialiser, stats: Stats, worth: Worth) -> None:
        """Fork, and make the call. `result` is there afterwards if it is worth anything. Raises nothing."""
        with materialiser.ledger.parking.using(self.scout):
            self._perform(materialiser, stats, worth)

    def _perform(self, materialiser: Materialiser, stats: Stats, worth: Worth) -> None:
        begun = time.perf_counter()
        try:
            workspace = self._fork(materialiser, stats, worth)
            if workspace is None or workspace.spec.network != "none":
                return
            self.at = self.scout.at
            self.urge()
            with stats.timed("draft", at=self.stand.node.number):
                result = workspace.call(self.edge.call, self.edge.timeout)
            if result.exit_reason in _ADOPTABLE:
                self.result = result
        except ForkError:
            self.stand.rollout.forkable = False
        except (BunshinError, OSError):
            pass  # the rollout went another way and closed it, or will meet the same trouble itself
        finally:
            self.seconds = time.perf_counter() - begun

    def _fork(self, materialiser: Materialiser, stats: Stats, worth: Worth) -> Workspace | None:
        """A fork at the stand's node, now the scout's; None where there is none to be had any more."""
        node, exact = self.stand.node, strict(self.edge.call)
        begun = time.perf_counter()
        at = self._seal(stats, worth, exact)
        if at is not None:
            with self.stand.sealing:
                if self.stand.snapshot is None:
                    return None
                with materialiser.ledger.room(self.scout):
                    with stats.timed("fork", at=node.number):
                        (child,) = self.stand.snapshot.fork(1)
                    if isinstance(child, WorkspaceError):
                        raise child
                    stats.add(forks=1)
                    self.scout.adopt(child, at, node)
            worth.cost("fork", time.perf_counter() - begun)
            return child
        if node.private or node.precarious:
            return None
        workspace = materialiser.bring(self.scout, strict=exact)
        self.owed = max(0.0, time.perf_counter() - begun - worth.costs["fork"])
        return workspace if self.scout.node is node and self.scout.at is not None else None

    def _seal(self, stats: Stats, worth: Worth, exact: bool) -> Node | None:
        """Have a snapshot of the rollout's own workspace, if it stands at the node. Returns the history that it has."""
        stand = self.stand
        with stand.rollout.lend() as workspace:
            if workspace is None or workspace.parked or stand.rollout.node is not stand.node:
                return None
            at = stand.rollout.at
            if at is None or not stand.rollout.stands(stand.node, strict=exact):
                return None
            with stand.sealing:
                if stand.left:
                    return None
                if stand.snapshot is None:
                    begun = time.perf_counter()
                    with stats.timed("snapshot", at=stand.node.number):
                        stand.snapshot = workspace.snapshot()
                    stats.add(snapshots=1)
                    worth.cost("seal", time.perf_counter() - begun)
            return at

    def urge(self) -> None:
        """Run in the background, unless somebody waits."""
        with self._urgency:
            workspace = self.scout.workspace
            wanted = self.taker is not None or self.phase is Phase.SQUASHED
            if workspace is None or (wanted and not self.in_background):
                return
            with contextlib.suppress(WorkspaceError):  # it is gone: whoever waits is told so by the call
                self.in_background = workspace.background(not wanted) and not wanted

    def clear(self) -> None:
        """Nobody wants it: end what runs, and leave nothing."""
        self.urge()  # what is to die needs a processor for it
        self.scout.close()
