"""Who holds which page store: workspaces and snapshots share them, and what is one's alone can be moved to a disk."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["StoreCounts", "Stores"]

Stores = tuple[tuple[int, int], ...]
"""Memory files: the identity and the bytes of each."""


class StoreCounts:
    """How many workspaces and snapshots hold each store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: Counter[int] = Counter()

    def hold(self, stores: Stores) -> Stores:
        with self._lock:
            self._holders.update(identity for identity, _ in stores)
        return stores

    def drop(self, stores: Stores) -> None:
        with self._lock:
            for identity, _ in stores:
                self._holders[identity] -= 1
                if not self._holders[identity]:
                    del self._holders[identity]

    def holders(self, identity: int) -> int:
        with self._lock:
            return self._holders[identity]
