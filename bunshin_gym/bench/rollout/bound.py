"""What caching could save at best: the batch played again in thought, with the call times measured in it.

Thinking cannot be saved. An oracle pays for each state and call once, and then what it took at the quickest: whoever
asks first runs it, whoever asks while it runs waits for its end, whoever asks later has the answer at once. Forks,
digests and the tree cost nothing. The calls of one rollout follow each other; where calls are busy, no more of them
than there are processors run at full speed.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Bound", "Timed", "bound", "by_history"]


@dataclass(frozen=True)
class Timed:
    """A call with what it costs. `key`: calls of one key give one answer; None for one that nobody can share."""

    think: float
    seconds: float
    key: Hashable | None


@dataclass(frozen=True)
class Bound:
    """Seconds. `latency`, `oracle`: of the batch, without and with sharing; `tools`, `saved`: work of its calls.

    `calls`, `hits`: how many there are, and how many an oracle answers.
    """

    latency: float
    oracle: float
    thinking: float
    tools: float
    saved: float
    calls: int
    hits: int
    ends: tuple[float, ...]


def bound(rollouts: Sequence[Sequence[Timed]], cores: int | None = None) -> Bound:
    """Play the rollouts, all begun at 0, in the order in which things happen, with sharing and without.

    `cores`: how many calls can run at full speed at a time; the others go slower by so much (None: none ever does).
    """
    shared = _Schedule(rollouts, cores, share=True)
    private = _Schedule(rollouts, cores, share=False)
    return Bound(
        latency=max(private.ends, default=0.0),
        oracle=max(shared.ends, default=0.0),
        thinking=max((sum(call.think for call in calls) for calls in rollouts), default=0.0),
        tools=sum(call.seconds for calls in rollouts for call in calls),
        saved=shared.saved,
        calls=sum(map(len, rollouts)),
        hits=shared.hits,
        ends=tuple(shared.ends),
    )


class _Schedule:
    """The rollouts, played in thought. `saved`: seconds of work that answers from elsewhere made needless."""

    def __init__(self, rollouts: Sequence[Sequence[Timed]], cores: int | None, *, share: bool) -> None:
        self._rollouts = rollouts
        self._cores = cores if cores is not None else len(rollouts) + 1
        self._share = share
        self.ends = [0.0] * len(rollouts)
        self.saved, self.hits = 0.0, 0
        self._now = 0.0
        self._thinking: list[tuple[float, int, int]] = []  # (until when, which rollout, which call)
        self._left: dict[tuple[int, int], float] = {}  # of running calls, the work still to be done
        self._waiting: dict[Hashable, list[tuple[int, int]]] = {}  # by the key of a running call
        self._known: set[Hashable] = set()
        self._play()

    def _play(self) -> None:
        for index, calls in enumerate(self._rollouts):
            if calls:
                heapq.heappush(self._thinking, (calls[0].think, index, 0))
        while self._thinking or self._left:
            speed = min(1.0, self._cores / len(self._left)) if self._left else 1.0
            first = min(self._left, key=lambda call: (self._left[call], call)) if self._left else None
            done = self._now + self._left[first] / speed if first is not None else math.inf
            asked = self._thinking[0][0] if self._thinking else math.inf
            then = min(done, asked)
            for call in self._left:
                self._left[call] -= (then - self._now) * speed
            self._now = then
            if first is not None and done <= asked:
                self._finish(first)
            else:
                _, index, number = heapq.heappop(self._thinking)
                self._ask(index, number)

    def _ask(self, index: int, number: int) -> None:
        call = self._rollouts[index][number]
        if self._share and call.key is not None:
            if call.key in self._known:
                self._answered(index, number)
                return
            if call.key in self._waiting:
                self._waiting[call.key].append((index, number))
                return
            self._waiting[call.key] = []
        self._left[index, number] = call.seconds

    def _finish(self, running: tuple[int, int]) -> None:
        del self._left[running]
        key = self._rollouts[running[0]][running[1]].key
        self._go_on(*running)
        if self._share and key is not None:
            self._known.add(key)
            for index, number in self._waiting.pop(key):
                self._answered(index, number)

    def _answered(self, index: int, number: int) -> None:
        self.hits += 1
        self.saved += self._rollouts[index][number].seconds
        self._go_on(index, number)

    def _go_on(self, index: int, number: int) -> None:
        self.ends[index] = self._now
        calls = self._rollouts[index]
        if number + 1 < len(calls):
            heapq.heappush(self._thinking, (self._now + calls[number + 1].think, index, number + 1))


def by_history(calls: Sequence[Hashable], root: Hashable) -> list[Hashable]:
    """The key of each call where a state is its history: a number that stands for the calls up to and including it."""
    digest = hashlib.blake2b(repr(root).encode(), digest_size=16)
    keys: list[Hashable] = []
    for call in calls:
        digest.update(repr(call).encode() + b"\0")
        keys.append(digest.copy().hexdigest())
    return keys
