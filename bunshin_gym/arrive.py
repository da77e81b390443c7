"""Step 4 of a call: the tree is told what it gave and which state it led to, and the rollout moves there."""

from __future__ import annotations

from collections.abc import Callable

from bunshin_gym.looks import leaves_running, seen
from bunshin_gym.materialise import CUT_SHORT, UNCACHED, Materialiser
from bunshin_gym.rollout import Rollout
from bunshin_gym.tools import ToolResult
from bunshin_gym.tree import Closable, Edge, Node, Step, Tree
from bunshin_gym.workspace import Workspace

__all__ = ["Arrivals"]


class Arrivals:
    """Enters calls into a tree; without `cache` none is found by anybody. `discard` closes what the tree lets go of."""

    def __init__(
        self, tree: Tree, materialiser: Materialiser, discard: Callable[[list[Closable]], None], *, cache: bool
    ) -> None:
        self._tree = tree
        self._materialiser = materialiser
        self._discard = discard
        self._cache = cache

    def enter(self, rollout: Rollout, edge: Edge, result: ToolResult, *, aside: bool) -> Step:
        """The call has been made: enter the state it led to, and move there. `aside`: its result is nobody else's."""
        node, at, workspace = rollout.node, rollout.at, rollout.workspace
        if node.private or at is None or workspace is None or not self._cache:
            step, gone = self._tree.insert(node, edge, result, private=True)
            there = step.target
        elif aside or self._is_aside(node, edge, result):
            step, gone = self._enter_aside(rollout, workspace, edge, result)
            there = at if step.target is node else step.target
        else:
            digest = self._materialiser.digest(workspace, at, edge) if self._materialiser.digests else None
            unchanged = digest is not None and digest.strict == rollout.strict
            rollout.strict = digest.strict if digest is not None else None
            step, gone = self._tree.insert(at, edge, result, digest, unchanged=unchanged)
            there = step.target
            if at is not node:  # the workspace came another way to this state
                step, more = self._tree.follow(node, step)
                gone = [*gone, *more]
        rollout.move(step, there)
        self._discard(gone)
        return step

    def _enter_aside(
        self, rollout: Rollout, workspace: Workspace, edge: Edge, result: ToolResult
    ) -> tuple[Step, list[Closable]]:
        """The same after a call whose result is nobody else's. From here on the workspace is the rollout's history.

        Whatever cannot be compared counts as of this very run of the call. Where something of that kind is left, or may
        go on by itself, nothing below is shared; but a call that was cut short leaves what it left to who is handed it.
        """
        node, handed = rollout.node, result.exit_reason in CUT_SHORT
        if leaves_running(edge.call):
            return self._tree.insert(node, edge, result, private=True)
        digest = self._materialiser.digest(workspace, node, edge, alone=True) if self._materialiser.digests else None
        unchanged = digest is not None and digest.strict == rollout.strict
        rollout.strict = digest.strict if digest is not None else None
        if not unchanged and not handed and (digest is None or digest.unique):
            return self._tree.insert(node, edge, result, private=True)
        return self._tree.insert(node, edge, result, digest, unchanged=unchanged, aside=True)

    def _is_aside(self, node: Node, edge: Edge, result: ToolResult) -> bool:
        """Whether what the call gave is nobody else's, as one can tell by now."""
        return result.exit_reason in UNCACHED or node.distrusts(edge) or bool(seen(edge.call, result, node.root.given))
