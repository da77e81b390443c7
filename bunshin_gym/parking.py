"""Workspaces that nobody uses are parked: sealed, their processes gone, and woken when their rollout needs them.

A workspace is parked only while no step of its rollout is at work in it, least recently used first, and only where
nothing runs in it by itself: a job in the background would stand still. What cannot be sealed is left alive.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from bunshin_gym.errors import ForkError, WorkspaceError
from bunshin_gym.rollout import Rollout
from bunshin_gym.stats import Stats
from bunshin_gym.workspace import Holding, Workspace

__all__ = ["Parking", "at_work"]

P = ParamSpec("P")
R = TypeVar("R")

# From what share of a processor on something is at work in a workspace; and what any workspace may have used since.
_WORKING, _WORKED = 0.05, 0.05
_MEASURING = 20  # a workspace is measured at most for one part in so many of the time

_log = logging.getLogger("bunshin_gym")


@dataclass(eq=False)
class Seat:
    """What is known of a rollout's workspace. `users`: steps at work in it. `stuck`: it could not be sealed."""

    held: Holding = field(default_factory=Holding)
    users: int = 0
    stuck: bool = False
    used: float = 0.0
    measured: float = 0.0
    cost: float = 0.0


class Parking:
    """The workspaces of rollouts, for a ledger."""

    kind = "workspaces"
    rank = 2

    def __init__(self, stats: Stats, *, active: bool) -> None:
        self.stats = stats
        self.active = active
        self._lock = threading.Lock()
        self._seats: WeakKeyDictionary[Rollout, Seat] = WeakKeyDictionary()
        self._usual = 0  # bytes of its own that a workspace has had lately, after a step

    # -- use

    @contextmanager
    def using(self, rollout: Rollout) -> Iterator[None]:
        """A step is at work in the rollout's workspace: it is not parked meanwhile, and measured afterwards."""
        if not self.active:
            yield
            return
        with self._lock:
            seat = self._seats.setdefault(rollout, Seat())
            seat.users += 1
        try:
            yield
        finally:
            self._measure(seat, rollout.workspace, resting=True)
            seat.stuck, seat.used = False, time.monotonic()
            with self._lock:
                seat.users -= 1

    def expected(self, rollout: Rollout) -> int:
        """Bytes that a workspace for the rollout is likely to need."""
        with self._lock:
            seat = self._seats.get(rollout)
        parked = rollout.workspace is not None and rollout.workspace.parked
        return seat.held.own if parked and seat is not None else self._usual

    def arrived(self, rollout: Rollout) -> None:
        """The rollout has got a workspace, or has it back."""
        with self._lock:
            seat = self._seats.setdefault(rollout, Seat())
        seat.measured = 0.0
        self._measure(seat, rollout.workspace)

    def _measure(self, seat: Seat, workspace: Workspace | None, *, resting: bool = False) -> None:
        """See what it holds by now. One that is at work is taken to need what is usual after a step, if not more."""
        began = time.monotonic()
        if workspace is None or workspace.parked or began - seat.measured < _MEASURING * seat.cost:
            return
        try:
            held = workspace.holding()
        except WorkspaceError:
            return  # it is gone, or going: whoever uses it next finds out
        seat.measured = time.monotonic()
        seat.cost = seat.measured - began
        seat.held = held if resting else replace(held, own=max(held.own, self._usual))
        if resting:
            self._usual = (3 * self._usual + held.own) // 4 if self._usual else held.own

    # -- as a holder

    def holdings(self) -> Iterable[Holding]:
        for _, seat, workspace in self._living():
            if not workspace.parked:
                yield seat.held
            else:
                try:
                    yield workspace.holding()
                except WorkspaceError:
                    continue  # closed meanwhile

    def live(self, other_than: Rollout) -> bool:
        return any(rollout is not other_than and not workspace.parked for rollout, _, workspace in self._living())

    def look(self) -> None:
        for _, seat, workspace in self._living():
            if seat.users:
                self._measure(seat, workspace)

    def shed(self, wanted: int) -> int:
        """Park workspaces until about so many bytes are free. Returns how many are; 0 where nothing can be parked."""
        idle = [entry for entry in self._living() if not (entry[1].users or entry[1].stuck or entry[2].parked)]
        free = 0
        for _, seat, workspace in sorted(idle, key=lambda entry: entry[1].used):
            if free >= wanted:
                break
            if not seat.users and self._park(seat, workspace):
                free += max(1, seat.held.own)
        return free

    def _park(self, seat: Seat, workspace: Workspace) -> bool:
        try:
            before, since, now = seat.held.cpu, seat.measured, workspace.holding()
            if now.cpu - before > _WORKED + _WORKING * (time.monotonic() - since):
                return False
            with self.stats.timed("park"):
                workspace.park()
        except ForkError as error:
            seat.stuck = True
            _log.info("a workspace cannot be parked, and stays: %s", error)
            return False
        except WorkspaceError:
            return False  # in use again, or gone
        self.stats.add(parked=1)
        return True

    def _living(self) -> list[tuple[Rollout, Seat, Workspace]]:
        """Who has a workspace."""
        with self._lock:
            seats = list(self._seats.items())
        return [(rollout, seat, w) for rollout, seat in seats if (w := rollout.workspace) is not None and not w.closed]


class _Ledger(Protocol):
    @property
    def parking(self) -> Parking: ...


class _HasLedger(Protocol):
    @property
    def ledger(self) -> _Ledger: ...


S = TypeVar("S", bound=_HasLedger)


def at_work(step: Callable[Concatenate[S, Rollout, P], R]) -> Callable[Concatenate[S, Rollout, P], R]:
    """A method that is at work in the workspace of the rollout it is given."""

    @wraps(step)
    def working(self: S, rollout: Rollout, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.ledger.parking.using(rollout):
            return step(self, rollout, *args, **kwargs)

    return working
