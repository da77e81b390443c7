"""Where an episode stands: a node of the tree, and perhaps a live workspace.

After a hit the rollout moves on and its workspace stays behind: the calls between `at` (where the workspace is) and
`node` (where the rollout is) are a debt, paid when a miss needs a live workspace. A rollout may be closed from another
thread while its own is still at work: a workspace that arrives afterwards is closed at once.
"""

from __future__ import annotations

import threading
from typing import Protocol

from bunshin_gym.errors import WorkspaceLost
from bunshin_gym.tree import Node
from bunshin_gym.workspace import Workspace

__all__ = ["Rollout"]


class Anchor(Protocol):
    """Something that keeps a node's snapshot until it is released."""

    def release(self) -> None: ...


class Rollout:
    """One episode in progress. Used by one thread at a time, but for `close`.

    `anchor` keeps the snapshot of the node it starts from until the rollout has a workspace of its own.
    """

    def __init__(self, node: Node, anchor: Anchor | None = None) -> None:
        self.node = node
        self.anchor = anchor
        self.at: Node | None = None
        self.workspace: Workspace | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def adopt(self, workspace: Workspace, at: Node) -> None:
        """Take over a workspace that stands at `at`, in place of the old one. Raises WorkspaceLost once closed."""
        with self._lock:
            closed = self._closed
            old, self.workspace = self.workspace, None if closed else workspace
            self.at = None if closed else at
        self._weigh()
        if old is not None:
            old.close()
        if closed:
            workspace.close()
            raise WorkspaceLost("cannot give the rollout a workspace: the rollout was closed")

    def move(self, node: Node) -> None:
        """The workspace has made the call that leads to `node`."""
        self.node = self.at = node

    def drop(self) -> None:
        """Let go of the workspace; the rollout stays where it is."""
        with self._lock:
            old, self.workspace, self.at = self.workspace, None, None
        if old is not None:
            old.close()

    def close(self) -> None:
        """The end of the rollout. Idempotent."""
        with self._lock:
            self._closed = True
        self._weigh()
        self.drop()

    def _weigh(self) -> None:
        """Let go of the anchor, once."""
        with self._lock:
            anchor, self.anchor = self.anchor, None
        if anchor is not None:
            anchor.release()
