"""Calls in flight: of siblings asking the same thing at the same moment one runs, and the others wait for it."""

from __future__ import annotations

import enum
import threading
from collections.abc import Hashable
from types import TracebackType
from typing import Self

from bunshin_gym.errors import WorkspaceLost
from bunshin_gym.rollout import Rollout

__all__ = ["Flight", "Flights", "Landing"]


class Landing(enum.Enum):
    """How a flight ended, for those who waited."""

    SHARED = "its result is there for all"
    UNSHARED = "its result is nobody else's: each runs the call alone"
    FAILED = "it gave no result: one of those who waited takes over"


class Flight:
    """One call being run. The leader holds it as a context; leaving it without having landed means it failed."""

    def __init__(self, table: Flights, key: Hashable) -> None:
        self._table = table
        self._key = key
        self._changed = threading.Condition()
        self._over = False
        self._landing = Landing.FAILED

    def land(self, landing: Landing) -> None:
        """The leader says how it ended."""
        self._landing = landing

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
            raise WorkspaceLost("cannot wait for a sibling's call: the rollout was closed")
        return self._landing

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._table.end(self._key)
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Flights:
    """What is in flight, by where it is asked and what."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[Hashable, Flight] = {}

    def join(self, *key: Hashable) -> tuple[Flight, bool]:
        """The flight of that key, and whether the caller is to lead it."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                return flight, False
            flight = self._flights[key] = Flight(self, key)
            return flight, True

    def end(self, key: Hashable) -> None:
        with self._lock:
            del self._flights[key]
