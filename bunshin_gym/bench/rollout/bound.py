"""What caching could save at best: the batch played again in thought, with the call times measured in it.

Thinking cannot be saved. An oracle pays for each state and call once, and then what it took at the quickest: whoever
asks first runs it, whoever asks while it runs waits for its end, whoever asks later has the answer at once. Forks,
digests and the tree cost nothing. The calls of one rollout follow each other, and rollouts do not slow each other down:
where processors are short, not even an oracle gets there.
"""

from __future__ import annotations

import hashlib
import heapq
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
    """Seconds. `latency`, `oracle`: of the batch, without and with sharing; `tools`, `saved`: of its calls, summed.

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


def bound(rollouts: Sequence[Sequence[Timed]]) -> Bound:
    """Play the rollouts, all begun at 0, in the order in which things happen."""
    ready: dict[Hashable, float] = {}
    ends = [0.0] * len(rollouts)
    saved, hits = 0.0, 0
    # (when the next call is made, which rollout, which call)
    events = [(calls[0].think, index, 0) for index, calls in enumerate(rollouts) if calls]
    heapq.heapify(events)
    while events:
        now, index, number = heapq.heappop(events)
        call = rollouts[index][number]
        if call.key is not None and call.key in ready:
            end = min(max(now, ready[call.key]), now + call.seconds)
            hits += 1
            saved += call.seconds - (end - now)
        else:
            end = now + call.seconds
            if call.key is not None:
                ready[call.key] = end
        ends[index] = end
        if number + 1 < len(rollouts[index]):
            heapq.heappush(events, (end + rollouts[index][number + 1].think, index, number + 1))
    private = [sum(call.think + call.seconds for call in calls) for calls in rollouts]
    return Bound(
        latency=max(private, default=0.0),
        oracle=max(ends, default=0.0),
        thinking=max((sum(call.think for call in calls) for calls in rollouts), default=0.0),
        tools=sum(call.seconds for calls in rollouts for call in calls),
        saved=saved,
        calls=sum(map(len, rollouts)),
        hits=hits,
        ends=tuple(ends),
    )


def by_history(calls: Sequence[Hashable], root: Hashable) -> list[Hashable]:
    """The key of each call where a state is its history: a number that stands for the calls up to and including it."""
    digest = hashlib.blake2b(repr(root).encode(), digest_size=16)
    keys: list[Hashable] = []
    for call in calls:
        digest.update(repr(call).encode() + b"\0")
        keys.append(digest.copy().hexdigest())
    return keys
