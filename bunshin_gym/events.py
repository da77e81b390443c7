"""What an executor did and when, one event at a time, for whoever wants to look at a run: afterwards, or as it goes on.

    executor = Executor(events=Events())                    # also gym.make("bunshin/Shell-v0", events=Events())
    with events.span("park", rollout=rollout.number): …     # something that takes time
    events.add("evict", at=node.number, note="3 MB")        # something that has happened

Spans nest: what is noted inside another one, in the same thread, belongs to the same rollout, and its time is taken off
the other's `own`. So the `own` seconds of all events of a rollout add up to its life, and nothing counts twice. What is
noted outside any rollout's work (audits, drafts, a pool that fills itself) is *background*, and carries its thread's
name instead. Without a recorder nothing of this is done: an executor that has none tests for None, once a call.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from bunshin_gym.rollout import Rollout

__all__ = ["Event", "Events", "Span", "Total"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that took `seconds` from `start` on (of time.perf_counter()); `own` of them are of no event inside it.

    `kind`: what was done. An executor notes "open", "think", "call" and "judge" of each rollout, and inside those the
    stages that its statistics know ("run", "wait", "replay", "fork", "snapshot", "digest", "prepare", "verify" …);
    others add kinds of their own. `rollout`: the number of the rollout it was done for, or 0. `at`: the number of the
    node where it was done, of a call that of its step, or 0. `note`: of a call how it was answered, "hit", "wait",
    "draft" or "run" (see `Rollout.answered`), or "failed". `thread`: the name of it, of what is background.
    """

    kind: str
    start: float
    seconds: float = 0.0
    own: float = 0.0
    rollout: int = 0
    at: int = 0
    note: str = ""
    thread: str = ""

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass
class Total:
    """How many events of a kind there were, and their own seconds."""

    count: int = 0
    seconds: float = 0.0


class _Inside(threading.local):
    """What a thread is in the middle of: for which rollout, and the seconds of the spans that ended in the open one."""

    rollout = 0
    seconds = 0.0


class Span:
    """Something under way: `with events.span(…) as span`. What is only known later is set before it ends."""

    def __init__(self, events: Events, kind: str, rollout: int, at: int, note: str) -> None:
        self.kind = kind
        self.at = at
        self.note = note
        self._events = events
        self._rollout = rollout

    def __enter__(self) -> Self:
        inside = self._events._inside
        self._outer = inside.rollout, inside.seconds
        if self._rollout:
            inside.rollout = self._rollout
        inside.seconds = 0.0
        self.start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        seconds = time.perf_counter() - self.start
        inside = self._events._inside
        rollout, own = inside.rollout, max(0.0, seconds - inside.seconds)
        inside.rollout = self._outer[0]
        inside.seconds = self._outer[1] + seconds
        self._events._keep(self.kind, self.start, seconds, own, rollout, self.at, self.note)


class _RolloutSpan(Span):
    """A rollout's own move; since its last one it has been left to its policy."""

    def __init__(self, events: Events, kind: str, rollout: Rollout) -> None:
        super().__init__(events, kind, rollout.number, rollout.node.number, "")
        self._of = rollout

    def __enter__(self) -> Self:
        super().__enter__()
        rested = self._of.rested
        if rested is not None:
            thought = self.start - rested
            self._events._keep("think", rested, thought, thought, self._rollout, self.at, "")
        self._of.answered = ""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.kind == "call":
            self.note = self._of.answered or "failed"
            self.at = self._of.trail[-1].number if self._of.answered and self._of.trail else self.at
        super().__exit__(kind, error, at)
        self._of.rested = time.perf_counter()


class Events:
    """The last `limit` events (one takes about 200 bytes), and the totals of all. Safe from any thread.

    `dropped`: how many were there before those that are kept. `totals`: by kind, of what was done for rollouts;
    `background`: of all the rest.
    """

    def __init__(self, limit: int = 200_000) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit!r}")
        self.began = time.perf_counter()
        self.totals: dict[str, Total] = {}
        self.background: dict[str, Total] = {}
        self._kept: deque[Event] = deque(maxlen=limit)
        self._count = 0
        self._lock = threading.Lock()
        self._inside = _Inside()

    def span(self, kind: str, *, rollout: int = 0, at: int = 0, note: str = "") -> Span:
        """A context for something that takes time. `rollout`: that of the span it is in, unless given."""
        return Span(self, kind, rollout, at, note)

    def move(self, kind: str, rollout: Rollout) -> Span:
        """A context for a rollout's own move: "open", "call" or "judge". The time since its last one is a "think"."""
        return _RolloutSpan(self, kind, rollout)

    def add(self, kind: str, *, rollout: int = 0, at: int = 0, seconds: float = 0.0, note: str = "") -> None:
        """Something that has just ended. Its `seconds` are its own, and not of what it is in."""
        inside = self._inside
        inside.seconds += seconds
        self._keep(kind, time.perf_counter() - seconds, seconds, seconds, rollout or inside.rollout, at, note)

    @property
    def dropped(self) -> int:
        with self._lock:
            return self._count - len(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Event]:
        """Those that are kept, in the order in which they ended. A copy: more may be added meanwhile."""
        with self._lock:
            return iter(list(self._kept))

    def _keep(self, kind: str, start: float, seconds: float, own: float, rollout: int, at: int, note: str) -> None:
        thread = "" if rollout else threading.current_thread().name
        event = Event(kind, start, seconds, own, rollout, at, note, thread)
        with self._lock:
            self._kept.append(event)
            self._count += 1
            totals = self.totals if rollout else self.background
            total = totals.get(kind)
            if total is None:
                total = totals[kind] = Total()
            total.count += 1
            total.seconds += own
