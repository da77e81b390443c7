"""Recall: a call tree goes on with what earlier processes have saved, and is saved in its turn.

What was saved of a root is used only where its stamp is the one of now (task, image, machine, package …) and where the
workspace just prepared is in the very state that those began in. Then it grows into the tree, without snapshots: who
needs a workspace below it gets a fork of the root in which the calls are replayed, and checked against the record.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bunshin_gym.errors import TreeFileError
from bunshin_gym.graft import cut, graft
from bunshin_gym.node import Closable, Node
from bunshin_gym.stamp import Stamp
from bunshin_gym.stats import Stats
from bunshin_gym.tree import Tree
from bunshin_gym.treefile import SavedRoot, TreeFile
from bunshin_gym.workspace import Workspace

__all__ = ["Recall", "Stamper"]

Stamper = Callable[[Workspace], Stamp | None]

_NEEDS = "needs cache=True and key='state': states are what is compared"
_log = logging.getLogger("bunshin_gym")


class Recall:
    """The saved roots of one executor's tree. `saved`: a file that was read, or where one is, if there is one.

    A path is looked at with the first root. Thread-safe. Raises ValueError for `saved` without `digests`.
    """

    def __init__(
        self, tree: Tree, stats: Stats, saved: TreeFile | str | os.PathLike[str] | None, *, digests: bool
    ) -> None:
        if saved is not None and not digests:
            raise ValueError(f"a saved call tree {_NEEDS}")
        self.digests = digests
        self.tree = tree
        self.stats = stats
        self.path = saved.path if isinstance(saved, TreeFile) else saved
        self._saved = saved if isinstance(saved, TreeFile) else None
        self._stamps: dict[Node, tuple[str, Stamp]] = {}
        self._lock = threading.Lock()

    def plant(self, root: Node, name: object, workspace: Workspace, stamper: Stamper | None) -> list[Closable]:
        """A root's first workspace is prepared: grow what was saved of it. Returns what the tree lets go of for that.

        Raises TreeFileError where the file, or what it holds of this root, is damaged.
        """
        stamp = stamper(workspace) if stamper is not None and isinstance(name, str) else None
        if stamp is None or root.state is None:
            return []
        with self._lock:
            self._stamps[root] = (str(name), stamp)
            saved = self._file().roots.get(str(name))
        if saved is None or root.steps:
            return []
        differing = stamp.differs(saved.stamp) or (
            ["the prepared workspace"] if root.state.loose != saved.loose else []
        )
        if differing:
            self.stats.add(stale=saved.steps)
            _log.info("what was saved of %r is not used: not the same: %s", name, ", ".join(differing))
            return []
        with _uncollected():
            try:
                subtree = saved.unpack()
            except ValueError as error:
                raise TreeFileError(f"cannot use what was saved of {name!r} in {self.path}: {error}") from error
            if not stamp.verifier or stamp.verifier != saved.stamp.verifier:
                subtree = subtree.without_verdicts()
            self.stats.add(recalled=len(subtree.steps))
            return graft(self.tree, root, subtree)

    def into(self, file: TreeFile) -> None:
        """Put what is known by now into a file that is written later, beside what it has of other roots.

        Raises ValueError without digests.
        """
        if not self.digests:
            raise ValueError(f"cannot save the call tree: that {_NEEDS}")
        with self._lock:
            for name, saved in self._file().roots.items():
                file.roots.setdefault(name, saved)
            stamps = dict(self._stamps)
        for root, (name, stamp) in stamps.items():
            with _uncollected():
                subtree = cut(self.tree, root)
                if root.state is not None and subtree.steps:
                    subtree = subtree if stamp.verifier else subtree.without_verdicts()
                    file.roots[name] = SavedRoot.pack(name, stamp, root.state.loose, subtree)

    def save(self, path: str | os.PathLike[str] | None) -> None:
        """Write what is known by now, and what the file that it began with has of other roots. Raises TreeFileError."""
        path = path if path is not None else self.path
        if path is None:
            raise TreeFileError("cannot save the call tree: no file was named")
        file = TreeFile()
        self.into(file)
        file.write(path)

    def _file(self) -> TreeFile:
        if self._saved is None:
            self._saved = TreeFile() if self.path is None else TreeFile.read_if_there(self.path)
        return self._saved


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's cyclic collector, which would look at many new objects again and again: twice as fast."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
