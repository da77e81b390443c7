"""What can be told of a workspace: its memory, its processes, what a fork of it cost. Plain records."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

__all__ = ["ForkReport", "Holding", "MemoryUsage", "ProcessInfo"]


@dataclass(frozen=True)
class MemoryUsage:
    """Bytes, summed over a workspace's processes: resident, proportional share, and private to it."""

    rss: int
    pss: int
    private: int


@dataclass(frozen=True)
class Holding:
    """What a workspace or a snapshot keeps in memory, for adding up: `own` bytes, and what it shares with relatives by
    identity: the bytes of each page store. `cpu`: seconds of processor time its processes have had."""

    own: int = 0
    shared: Mapping[Hashable, int] = field(default_factory=dict)
    cpu: float = 0.0


@dataclass(frozen=True)
class ProcessInfo:
    """One process as it is seen inside its workspace."""

    pid: int
    ppid: int
    comm: str
    threads: int = 1


@dataclass(frozen=True)
class ForkReport:
    """What a seal or a rebuild cost: milliseconds per stage, processes, threads, bytes shared and copied.

    Also what was left out (`skipped`), and what else there is to know of a fork (`notes`): the clocks of one that was
    made long after its seal, connections to the outside that it has lost.
    """

    stages: Mapping[str, float] = field(default_factory=dict)
    bytes_shared: int = 0
    bytes_copied: int = 0
    skipped: tuple[str, ...] = ()
    processes: int = 0
    threads: int = 0
    notes: tuple[str, ...] = ()
