"""What was saved and what it cost: counters of an executor. Thread-safe; never part of an observation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

from bunshin_gym.events import Events

__all__ = ["Stats"]

_UNSEEN = nullcontext()


@dataclass
class Stats:
    """Counters since the executor was made.

    `calls` = `hits` + `waits` + `misses`: answered from the tree, answered by a sibling that was running the same call,
    and run. `handed` of the waits were for a call that was cut short, and got a fork of what it led to. `invalid`
    actions are no calls. `saved_seconds` is what the calls of hits and waits had taken when they were run.
    `hits_by_state` of the hits were made at another node of the state, `saved_by_state` are their seconds. `audits` of
    the hits were run again; `false_hits` of those gave something else, and `false_hit_calls` says which calls.
    `drafts` of the misses were answered by a draft, one of `drafts_proposed` of which `drafts_begun` were run and
    `drafts_squashed` thrown away; those that were adopted have saved `drafts_saved_seconds`, those that were not have
    spent `drafts_wasted_seconds` in the background.
    `seconds` holds the time spent per stage (`prepare`, `fork`, `replay`, `run`, `digest`, `snapshot`, `freeze`,
    `verify`, `audit`, `wait`, `draft`, `park`, `wake`; `budget`: waiting for memory), summed over threads. What is
    timed is also noted in `events`, if there are any. With a memory budget, `memory` is what is held, in bytes by kind
    ("stores": page stores, that many share), `memory_peak` the most that was; `parked` and `woken` count workspaces.
    `snapshots_declined`: where the policy was asked after a call that owed something, and said that none would pay.
    `recalled` steps came from the file of a tree; `stale` ones were in it, but of another task, image, machine or
    package, and are not used.
    """

    calls: int = 0
    hits: int = 0
    waits: int = 0
    handed: int = 0
    misses: int = 0
    drafts: int = 0
    prepared: int = 0
    forks: int = 0
    snapshots: int = 0
    snapshots_declined: int = 0
    snapshots_evicted: int = 0
    replays: int = 0
    replay_mismatches: int = 0
    timeouts: int = 0
    lost: int = 0
    verified: int = 0
    verdicts_shared: int = 0
    invalid: int = 0
    overdue: int = 0
    hits_by_state: int = 0
    digests: int = 0
    digests_failed: int = 0
    unique_states: int = 0
    recalled: int = 0
    stale: int = 0
    audits: int = 0
    audits_failed: int = 0
    audits_skipped: int = 0
    false_hits: int = 0
    drafts_proposed: int = 0
    drafts_begun: int = 0
    drafts_squashed: int = 0
    drafts_saved_seconds: float = 0.0
    drafts_wasted_seconds: float = 0.0
    parked: int = 0
    woken: int = 0
    memory_peak: int = 0
    memory: dict[str, int] = field(default_factory=dict)
    saved_seconds: float = 0.0
    saved_by_state: float = 0.0
    false_hit_calls: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _events: Events | None = field(default=None, repr=False, compare=False)

    def add(self, **amounts: float) -> None:
        """Add to counters by name."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def holds(self, memory: dict[str, int], total: int) -> None:
        """What is held by now."""
        with self._lock:
            self.memory = memory
            self.memory_peak = max(self.memory_peak, total)

    def false_hit(self, call: str) -> None:
        """Count a false hit; the first hundred calls are kept by name."""
        with self._lock:
            self.false_hits += 1
            if len(self.false_hit_calls) < 100:
                self.false_hit_calls.append(call)

    @property
    def events(self) -> Events | None:
        """Where every stage is noted as well."""
        return self._events

    @events.setter
    def events(self, events: Events | None) -> None:
        self._events = events

    @contextmanager
    def timed(self, stage: str, *, at: int = 0) -> Iterator[None]:
        """Add the time the block takes to `seconds[stage]`. `at`: the number of the node where it is done, if known."""
        start = time.perf_counter()
        try:
            with self._events.span(stage, at=at) if self._events is not None else _UNSEEN:
                yield
        finally:
            elapsed = time.perf_counter() - start
            with self._lock:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + elapsed

    def as_dict(self) -> dict[str, Any]:
        """A copy as plain values, for printing and JSON."""
        with self._lock:
            public = {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}
            copies = {"seconds": dict(self.seconds), "memory": dict(self.memory)}
            return public | copies | {"false_hit_calls": list(self.false_hit_calls)}
