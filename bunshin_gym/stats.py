"""What was saved and what it cost: counters of an executor. Thread-safe; never part of an observation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["Stats"]


@dataclass
class Stats:
    """Counters since the executor was made.

    `calls` = `hits` + `waits` + `misses`: answered from the tree, answered by a sibling that was running the same
    call, and run. `invalid` actions are no calls. `saved_seconds` is what the calls of hits and waits had taken when
    they were run. `seconds` holds the time spent per stage (`prepare`, `fork`, `replay`, `run`, `snapshot`, `verify`),
    summed over threads.
    """

    calls: int = 0
    hits: int = 0
    waits: int = 0
    misses: int = 0
    drafts: int = 0
    prepared: int = 0
    forks: int = 0
    snapshots: int = 0
    snapshots_evicted: int = 0
    replays: int = 0
    replay_mismatches: int = 0
    timeouts: int = 0
    lost: int = 0
    verified: int = 0
    verdicts_shared: int = 0
    invalid: int = 0
    overdue: int = 0
    saved_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **amounts: float) -> None:
        """Add to counters by name."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time the block takes to `seconds[stage]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            with self._lock:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + elapsed

    def as_dict(self) -> dict[str, Any]:
        """A copy as plain values, for printing and JSON."""
        with self._lock:
            public = {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}
            return public | {"seconds": dict(self.seconds)}
