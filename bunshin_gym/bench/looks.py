"""What the calls of recorded rollouts look at beside the state, as far as their texts tell: counted by verdict."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bunshin_gym.looks import Look, of
from bunshin_gym.traces import TraceTask

__all__ = ["VERDICTS", "Looked", "count", "look_at", "sample", "verdict"]

VERDICTS = ("shared", "shared, on trust", "by its own history", "run each time")
"""Answered in any history of the state: all that it runs is known, or not; only where the very calls were the same; not
at all."""


@dataclass(frozen=True)
class Looked:
    """A recorded call: of which family of tasks, its text, what that looks at, and whether a replay gave the same."""

    family: str
    command: str
    look: Look
    same: bool | None

    @property
    def verdict(self) -> str:
        return verdict(self.look)[0]

    @property
    def reason(self) -> str:
        return verdict(self.look)[1]


def verdict(look: Look) -> tuple[str, str]:
    """What becomes of a call, and why: the first reason that was found, in the order of the text."""
    if look.outside or look.leaves_running:
        return VERDICTS[3], look.outside or "leaves something running"
    if look.strict:
        return VERDICTS[2], look.strict
    return (VERDICTS[1], look.unread) if look.unread else (VERDICTS[0], "")


def look_at(tasks: Iterable[TraceTask]) -> list[Looked]:
    """Every call of the tasks' rollouts."""
    return [
        Looked(
            task.name.partition("/")[0],
            call.command,
            of(task.call(call)),
            None if call.replay_similarity is None else call.replay_similarity >= 0.99,
        )
        for task in tasks
        for rollout in task.rollouts
        for call in rollout.calls
    ]


def count(calls: Sequence[Looked]) -> Counter[tuple[str, str, str]]:
    """How many calls there are of each verdict, reason and family. Trust has no reason: see `Looked.look.unread`."""
    return Counter((c.verdict, "" if c.verdict == VERDICTS[1] else c.reason, c.family) for c in calls)


def sample(calls: Sequence[Looked], size: int, seed: int) -> list[Looked]:
    """Different calls, drawn at random, the same for the same seed: equally many that are shared and that are not."""
    different = sorted({(c.command, c.family): c for c in calls}.values(), key=lambda c: (c.family, c.command))
    shared = [c for c in different if c.verdict in VERDICTS[:2]]
    others = [c for c in different if c.verdict not in VERDICTS[:2]]
    rng = random.Random(seed)
    return rng.sample(shared, min(size - size // 2, len(shared))) + rng.sample(others, min(size // 2, len(others)))
