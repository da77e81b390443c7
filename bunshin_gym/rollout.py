"""Where an episode stands: a node of the tree, and perhaps a live workspace.

After a hit the rollout moves on and its workspace stays behind: the calls between `base` (where the workspace is) and
`node` (where the rollout is) are a debt, paid when a miss needs a live workspace. The workspace may have come another
way to the same state: `at` is its own history, and is not `base` then. A rollout may be closed from another thread
while its own is still at work: a workspace that arrives afterwards is closed at once.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from bunshin_gym.errors import WorkspaceLost
from bunshin_gym.tree import Node, Step, Tree
from bunshin_gym.workspace import Workspace

__all__ = ["Anchor", "Rollout"]

_numbers = itertools.count(1)


class Anchor(Protocol):
    """Something that keeps the snapshot of `node` until it is released."""

    node: Node

    def release(self) -> None: ...


class Rollout:
    """One episode in progress. Used by one thread at a time, but for `close`.

    `anchor` keeps the snapshot of the node it starts from, or was led to by a sibling, until it has a workspace of its
    own. `trail` holds every call it was answered, in order, and `answers` how: "hit", "wait" (by a sibling's that was
    running), "draft" or "run". `strict` is the strict digest of its workspace when that was last looked at. `number` is
    its own among all of this program. `answered`: how its last call was answered, or "" where it failed; `rested`: when
    its last move was over (time.perf_counter()), where that is recorded.
    """

    def __init__(self, node: Node, anchor: Anchor | None = None) -> None:
        self.node = node
        self.anchor = anchor
        self.at: Node | None = None
        self.base: Node | None = None
        self.strict: bytes | None = None
        self.workspace: Workspace | None = None
        self.trail: list[Step] = []
        self.number = next(_numbers)
        self.answers: list[str] = []
        self.answered = ""
        self.patient = True  # whether others are to make room for its workspace, and it waits for them
        self.rested: float | None = None
        self.forkable = True  # until a seal or fork of its workspace has failed
        self.background = False  # whether nobody waits for its calls: its workspaces give way to all others
        self._lock = threading.Lock()
        self._closed = False
        self._lent = threading.Lock()  # held while another thread uses the workspace
        self._idle = False  # whether one may
        self._watchers: list[Callable[[], None]] = []

    @property
    def closed(self) -> bool:
        return self._closed

    def adopt(self, workspace: Workspace, at: Node, base: Node | None = None) -> None:
        """Take over a workspace that stands at `at`, in place of the old one. Raises WorkspaceLost once closed.

        `base`: the node of this rollout's own history that is of the same state; `at` itself unless given.
        """
        with self._lock:
            closed = self._closed
            old, self.workspace = self.workspace, None if closed else workspace
            self.at = None if closed else at
            self.base = None if closed else base if base is not None else at
            self.strict = None if closed else at.strict
        if self.background and not closed:
            workspace.background(True)
        self._weigh()
        if old is not None:
            old.close()
        if closed:
            workspace.close()
            raise WorkspaceLost("cannot give the rollout a workspace: the rollout was closed")

    def stands(self, node: Node, *, strict: bool) -> bool:
        """Whether its workspace is at `node`: by the same calls if `strict`, else perhaps by others."""
        return self.workspace is not None and self.base is node and (self.at is node or not strict)

    def enter_again(self, tree: Tree) -> None:
        """The tree has let go of the node where it stands: have it found again, so that it shares as before."""
        found = tree.revive(self.node)
        if found is None or found is self.node:
            return
        if self.stands(self.node, strict=True):
            self.base = self.at = found
        elif self.base is not None:  # its workspace is behind, on a way that leads to the old node
            return
        self.node = found

    def move(self, step: Step, at: Node) -> None:
        """The workspace has made a call, and is at `at`, which to this rollout is where `step` led."""
        self.node = self.base = step.target
        self.at = at

    def follow(self, step: Step, anchor: Anchor) -> None:
        """A sibling has made the call for it: it goes on from where that led, in a fork of what `anchor` keeps."""
        self.node = step.target
        self.drop()
        with self._lock:
            old, self.anchor = self.anchor, None if self._closed else anchor
            if self._closed:
                old = anchor
        if old is not None:
            old.release()

    def reaches(self, node: Node) -> bool:
        """Whether it could have a workspace at `node`: only from its own where the way there cannot be gone again."""
        if not node.precarious:
            return True
        start = self.base if self.base is not None else self.anchor.node if self.anchor is not None else None
        return start is not None and node.descends(start)

    def answer(self, step: Step, how: str) -> None:
        """A call was answered with `step`."""
        self.trail.append(step)
        self.answers.append(how)
        self.answered = how

    @property
    def way(self) -> list[tuple[Step, str]]:
        """Every call it was answered, and how."""
        return list(zip(self.trail, self.answers, strict=False))

    def watch(self, on_close: Callable[[], None]) -> None:
        """Have `on_close()` called when the rollout is closed; at once where it is."""
        with self._lock:
            self._watchers.append(on_close)
            closed = self._closed
        if closed:
            on_close()

    def unwatch(self, on_close: Callable[[], None]) -> None:
        with self._lock:
            self._watchers.remove(on_close)

    @contextmanager
    def lend(self) -> Iterator[Workspace | None]:
        """Its workspace, for another thread, while its own is elsewhere: between `rest` and `reclaim`; else None."""
        with self._lent:
            yield self.workspace if self._idle and not self._closed else None

    def rest(self) -> None:
        """Its workspace is idle: it may be lent."""
        self._idle = True

    def reclaim(self) -> None:
        """Its own thread needs the workspace: waits until who has borrowed it is done, and nobody else may."""
        with self._lent:
            self._idle = False

    def hand_over(self) -> Workspace | None:
        """Its workspace, from now on the caller's; the rollout stays where it is."""
        with self._lock:
            workspace, self.workspace = self.workspace, None
            self.at = self.base = None
        return workspace

    def drop(self) -> None:
        """Let go of the workspace; the rollout stays where it is."""
        old = self.hand_over()
        if old is not None:
            old.close()

    def close(self) -> None:
        """The end of the rollout. Idempotent."""
        with self._lock:
            self._closed = True
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()
        self._weigh()
        self.drop()

    def _weigh(self) -> None:
        """Let go of the anchor, once."""
        with self._lock:
            anchor, self.anchor = self.anchor, None
        if anchor is not None:
            anchor.release()
