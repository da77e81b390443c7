"""Calls in flight: of siblings asking the same thing at the same moment one runs, and the others wait for it."""

from __future__ import annotations

import enum
import threading
from types import TracebackType
from typing import Self

from bunshin_gym.tree import Edge, Node

__all__ = ["Flight", "Flights", "Landing"]


class Landing(enum.Enum):
    """How a flight ended, for those who waited."""

    SHARED = "its result is in the tree"
    UNSHARED = "its result is nobody else's: each runs the call alone"
    FAILED = "it gave no result: one of those who waited takes over"


class Flight:
    """One call being run. The leader holds it as a context; leaving it without having landed means it failed."""

    def __init__(self, table: Flights, key: tuple[Node, Edge]) -> None:
        self._table = table
        self._key = key
        self._done = threading.Event()
        self._landing = Landing.FAILED

    def land(self, landing: Landing) -> None:
        """The leader says how it ended."""
        self._landing = landing

    def wait(self) -> Landing:
        """Wait for the end. As long as the leader's call may take: its own time limit is the bound."""
        self._done.wait()
        return self._landing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._table.end(self._key)
        self._done.set()


class Flights:
    """The calls in flight, by state and call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[tuple[Node, Edge], Flight] = {}

    def join(self, node: Node, edge: Edge) -> tuple[Flight, bool]:
        """The flight of that call, and whether the caller is to lead it."""
        with self._lock:
            flight = self._flights.get((node, edge))
            if flight is not None:
                return flight, False
            flight = self._flights[node, edge] = Flight(self, (node, edge))
            return flight, True

    def end(self, key: tuple[Node, Edge]) -> None:
        with self._lock:
            del self._flights[key]
