"""The snapshots that a tree keeps, as a ledger sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from bunshin_gym.budget import Ledger
from bunshin_gym.tree import Closable, Node, Tree
from bunshin_gym.workspace import Holding, Snapshot

__all__ = ["Kept"]


_WORTH = 4 << 20  # bytes for which a snapshot is moved: less is brought back too often


class Kept:
    """Counted, and let go of where memory is short: what nobody shares is moved to a disk, that of the least value
    first, and comes back with the next fork. Where there is none, those go whose state can be replayed.

    `discard` closes what the tree lets go of; `spare` tells whether a node's state can not be replayed.
    """

    kind = "snapshots"
    rank = 1

    def __init__(
        self, tree: Tree, ledger: Ledger, discard: Callable[[list[Closable]], None], spare: Callable[[Node], bool]
    ) -> None:
        self._tree = tree
        self._ledger = ledger
        self._discard = discard
        self._spare = spare

    def holdings(self) -> Iterable[Holding]:
        return [cast(Snapshot, snapshot).holding() for snapshot in self._tree.snapshots()]

    def shed(self, wanted: int) -> int:
        alone = self._ledger.alone()
        for snapshot in self._tree.snapshots():
            if alone(cast(Snapshot, snapshot).holding()) >= _WORTH and (moved := cast(Snapshot, snapshot).spill()):
                return moved
        gone = self._tree.shed(
            lambda node, snapshot: self._spare(node) or alone(cast(Snapshot, snapshot).holding()) <= 0
        )
        free = sum(alone(cast(Snapshot, snapshot).holding()) for snapshot in gone)
        self._discard(gone)
        return free
