"""Calls in flight: of siblings asking the same thing at the same moment one runs, and the others wait for it."""

from __future__ import annotations

import enum
import threading
from collections.abc import Hashable, Sequence
from types import TracebackType
from typing import Self

from bunshin_gym.errors import WorkspaceLost
from bunshin_gym.rollout import Anchor, Rollout
from bunshin_gym.tree import Edge, Step

__all__ = ["Flight", "Flights", "Landing", "Remembered"]


class Landing(enum.Enum):
    """How a flight ended, for those who waited."""

    SHARED = "its result is there for all"
    HANDED = "its result, and a fork of the state it led to, go to those who waited at the same node"
    UNSHARED = "its result is nobody else's: each runs the call alone"
    FAILED = "it gave no result: one of those who waited takes over"


class Flight:
    """One call being run. The leader holds it as a context; leaving it without having landed means it failed.

    `waiting`: how many wait for it. `step`: what is handed over, where that is how it ended.
    """

    def __init__(self, table: Flights, key: Hashable) -> None:
        self.waiting = 0
        self.step: Step | None = None
        self._places: list[Anchor] = []
        self._table = table
        self._key = key
        self._changed = threading.Condition()
        self._over = False
        self._landing = Landing.FAILED

    def land(self, landing: Landing) -> None:
        """The leader says how it ended."""
        self._landing = landing

    def shut(self) -> int:
        """Nobody is to come and wait any more. Returns how many have."""
        self._table.end(self._key, self)
        return self.waiting

    def hand(self, step: Step, places: Sequence[Anchor]) -> None:
        """The leader hands over what `step` gave and where it led: a place there for each who waits."""
        self.step = step
        with self._table.lock:
            self._places += places
            self._landing = Landing.HANDED
            surplus = [self._places.pop() for _ in range(len(places) - self.waiting)]  # of those who left meanwhile
        for place in surplus:
            place.release()

    def take(self) -> Anchor:
        """What was handed over, for one of those who waited: a place at the step's target, now the caller's."""
        return self._places.pop()

    def wait(self, rollout: Rollout) -> Landing:
        """Wait for the end, for a rollout. As long as the leader's call may take: its own time limit is the bound.

        Raises WorkspaceLost where that rollout is closed meanwhile.
        """
        rollout.watch(self._notify)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._over or rollout.closed)
        finally:
            rollout.unwatch(self._notify)
        if not self._over:
            self._leave()
            raise WorkspaceLost("cannot wait for a sibling's call: the rollout was closed")
        return self._landing

    def _leave(self) -> None:
        with self._table.lock:
            self.waiting -= 1
            place = self._places.pop() if self._places else None
        if place is not None:
            place.release()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._table.end(self._key, self)
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Flights:
    """What is in flight, by where it is asked and what. `lock` guards who waits for what, and is handed what."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._flights: dict[Hashable, Flight] = {}

    def join(self, *key: Hashable) -> tuple[Flight, bool]:
        """The flight of that key, and whether the caller is to lead it."""
        with self.lock:
            flight = self._flights.get(key)
            if flight is not None:
                flight.waiting += 1
                return flight, False
            flight = self._flights[key] = Flight(self, key)
            return flight, True

    def end(self, key: Hashable, flight: Flight) -> None:
        """The flight is not to be joined any more. Idempotent."""
        with self.lock:
            if self._flights.get(key) is flight:
                del self._flights[key]


class Remembered:
    """The last few thousand calls of some kind. Safe from any thread."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._edges: dict[Edge, None] = {}

    def add(self, edge: Edge) -> None:
        self._edges[edge] = None
        while len(self._edges) > self._most:
            self._edges.pop(next(iter(self._edges)), None)

    def __contains__(self, edge: Edge) -> bool:
        return edge in self._edges
