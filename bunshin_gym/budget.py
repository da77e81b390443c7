"""The memory budget: who holds how much, what is let go of first, and who waits.

One ledger an executor. *Holders* say what they hold, and let go of it when they are asked to: of what is worth least
first, in the order of their `rank`: drafts, snapshots of the tree, workspaces that nobody uses (they are parked, see
`parking`). What relatives share counts once.

Whoever is about to need memory asks for `room`. Where the budget has none, holders are asked to let go; where that is
not enough, it waits until others are done, for `patience` seconds at most. The only rollout that has a workspace never
waits: it runs on beyond the budget, with one warning. What grows while it runs is seen by a thread that looks now and
then, never for more than a twentieth of its time.

Memory is counted, not measured: anonymous pages and page tables of processes, and page stores. Shared memory that
programs make inside, and the page cache, are left out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from bunshin_gym.errors import MemoryBudgetExceeded, WorkspaceError, WorkspaceLost
from bunshin_gym.parking import Parking, at_work
from bunshin_gym.rollout import Rollout
from bunshin_gym.stats import Stats
from bunshin_gym.workspace import Holding, parse_size

__all__ = ["Holder", "Ledger", "at_work", "readable"]

_POLL = 0.02
_LOOK = 0.1  # seconds between two looks at what is running
_REST = 20  # times as long as a look has taken

_log = logging.getLogger("bunshin_gym")


class Holder(Protocol):
    """Somebody who holds memory. `kind` is its name in the statistics; the lowest `rank` is asked first."""

    kind: str
    rank: int

    def holdings(self) -> Iterable[Holding]:
        """What it holds by now; from any thread, and cheap."""

    def shed(self, wanted: int) -> int:
        """Let go of about `wanted` bytes, of what is worth least first. 0: there is nothing to let go of."""


class Ledger:
    """The books of one executor. `budget` None: there is no bound, and nothing is counted.

    Raises ValueError for a budget that is no size, and for `patience` that is no positive number of seconds.
    """

    def __init__(self, budget: str | int | None, patience: float, stats: Stats) -> None:
        self.budget = parse_size(budget)
        if not 0 < patience < float("inf"):
            raise ValueError(f"memory_patience must be a positive number of seconds, not {patience!r}")
        self.patience = patience
        self.stats = stats
        self.parking = Parking(stats, active=self.budget is not None)
        self._holders: list[Holder] = [self.parking]
        self._lock = threading.Lock()  # for the two below
        self._queue: deque[object] = deque()
        self._reserved = 0
        self._making = threading.Lock()  # one makes room at a time
        self._warned = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def register(self, holder: Holder) -> None:
        """From now on it is counted, and asked to let go."""
        self._holders = sorted([*self._holders, holder], key=lambda one: one.rank)

    # -- counting

    def count(self) -> int:
        """Bytes held by all, what is shared once. The statistics learn of it."""
        kinds: Counter[str] = Counter()
        shared: dict[Hashable, int] = {}
        for holder in self._holders:
            for holding in holder.holdings():
                kinds[holder.kind] += holding.own
                shared.update(holding.shared)
        kinds["stores"] = sum(shared.values())
        total = sum(kinds.values())
        self.stats.holds(dict(kinds), total)
        return total

    def alone(self) -> Callable[[Holding], int]:
        """What tells how many bytes would be free without a holding: those that nobody shares."""
        holders = Counter(identity for holder in self._holders for one in holder.holdings() for identity in one.shared)

        def free(holding: Holding) -> int:
            return holding.own + sum(size for identity, size in holding.shared.items() if holders[identity] <= 1)

        return free

    def fits(self, extra: int) -> bool:
        """Whether so much more would be within the budget, without anybody letting go of anything."""
        return self.budget is None or self.count() + self._reserved + extra <= self.budget

    # -- making room

    @contextmanager
    def room(self, rollout: Rollout, more: int = 0) -> Iterator[None]:
        """Room for what a workspace of the rollout is likely to need, and `more` bytes; the block brings it there.

        Sheds, and waits. Raises MemoryBudgetExceeded where there was none in time, WorkspaceLost where the rollout is
        closed meanwhile.
        """
        if self.budget is None:
            yield
            return
        self._watch()
        extra = self.parking.expected(rollout) + more
        with self.stats.timed("budget"):
            self._admit(extra, rollout)
        try:
            yield
            self.parking.arrived(rollout)
        finally:
            with self._lock:
                self._reserved -= extra

    def _admit(self, extra: int, rollout: Rollout) -> None:
        if not rollout.patient:
            with self._lock:
                if not self.fits(extra):
                    raise MemoryBudgetExceeded("the memory budget has no room for what is made ahead of time")
                self._reserved += extra
            return
        deadline = time.monotonic() + self.patience
        turn = object()
        with self._lock:
            self._queue.append(turn)
        try:
            while not (self._queue[0] is turn and self._make_room(extra, rollout)):
                if self._closed.wait(_POLL):
                    raise WorkspaceError("cannot start a workspace: the executor is closed")
                if rollout.closed:
                    raise WorkspaceLost("cannot wait for memory: the rollout was closed")
                if time.monotonic() > deadline:
                    raise MemoryBudgetExceeded(
                        f"cannot start a workspace: for {self.patience:g} s the memory budget of "
                        f"{readable(self.budget or 0)} has had no room for {readable(extra)}; held: {self._told()}"
                    )
        finally:
            with self._lock:
                self._queue.remove(turn)

    def _make_room(self, extra: int, rollout: Rollout) -> bool:
        """Whether there is room, once all have let go of what they could: it is reserved then."""
        with self._making:
            over = self._shed(extra)
            if over > 0 and (self._reserved or self.parking.live(rollout)):
                return False
            if over > 0 and not self._warned:
                self._warned = True
                _log.warning(
                    "the memory budget of %s is too small for a single workspace, which runs all the same; held: %s",
                    readable(self.budget or 0),
                    self._told(),
                )
            with self._lock:
                self._reserved += extra
            return True

    def _shed(self, extra: int = 0) -> int:
        """Have things let go of until `extra` more bytes fit; returns what is missing then."""
        assert self.budget is not None
        for holder in self._holders:
            while (over := self.count() + self._reserved + extra - self.budget) > 0:
                if holder.shed(over) <= 0:
                    break
            else:
                return 0
        return self.count() + self._reserved + extra - self.budget

    def _told(self) -> str:
        return ", ".join(f"{name} {readable(size)}" for name, size in self.stats.memory.items() if size) or "nothing"

    # -- what grows while it runs

    def _watch(self) -> None:
        with self._making:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._look, name="bunshin-budget", daemon=True)
                self._thread.start()

    def _look(self) -> None:
        rest = _LOOK
        while not self._closed.wait(rest):
            began = time.monotonic()
            self.parking.look()
            rest = max(_LOOK, _REST * (time.monotonic() - began))
            if not self.fits(0):
                with self._making:
                    self._shed()

    def close(self) -> None:
        """Nobody waits any longer. Idempotent."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()


def readable(size: int) -> str:
    """Bytes as a person reads them."""
    for unit, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << unit:
            return f"{size / (1 << unit):.1f} {name}"
    return f"{size} bytes"
