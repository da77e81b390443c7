"""A scripted policy with habits: what rollouts of one task have in common, and where they part.

Rollouts of one policy open alike and part later. Each begins with the usual opening, step by step, and departs from it
now and then; reads some of what there is to read, in an order of its own; tries one way to do the task and checks it;
after a check that fails looks again and tries another; and closes. Which attempts are right is known to whoever wrote
them down, so a rollout is a fixed list of calls, drawn from its seed alone: every way to run it makes the same calls.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bunshin_gym.tools import ToolCall

__all__ = ["THINKING", "Attempt", "Habits", "Path"]

# Seconds a policy thinks before a call: quantiles of recorded rollouts (deepseek-chat under mini-swe-agent, eight tasks
# of SWE-bench, 2,939 calls). Between them the logarithm is interpolated.
THINKING = (
    (0.0, 2.0),
    (0.1, 3.19),
    (0.25, 3.81),
    (0.5, 4.9),
    (0.75, 8.73),
    (0.9, 18.3),
    (0.95, 26.2),
    (0.99, 46.8),
    (1.0, 60.0),
)

Step = str | ToolCall


@dataclass(frozen=True)
class Attempt:
    """One way to do the task: the calls, whether it is right, and how likely a rollout is to try it."""

    steps: tuple[Step, ...]
    right: bool
    weight: float = 1.0


@dataclass(frozen=True)
class Path:
    """What one rollout does: its calls, the seconds it thinks before each, and whether it will have done the task."""

    calls: tuple[ToolCall, ...]
    thinking: tuple[float, ...]
    right: bool


@dataclass(frozen=True)
class Habits:
    """How rollouts of a task go.

    `opening`: step by step, the usual form first and others that are as good. `reading`: what may be looked at next;
    each with even chances, in any order. `attempts`: ways to do the task. `check`: forms of the call that tells whether
    it is done. `again`: what may be looked at after a check that failed. `closing`: forms of the last call.
    `usual`: how likely the usual form is at each step of the opening. `patience`: how many attempts a rollout makes.
    """

    opening: tuple[tuple[Step, ...], ...]
    reading: tuple[Step, ...]
    attempts: tuple[Attempt, ...]
    check: tuple[Step, ...]
    again: tuple[Step, ...]
    closing: tuple[Step, ...]
    usual: float = 0.9
    patience: int = 4

    def path(self, seed: str | int) -> Path:
        """The rollout of that seed, the same everywhere and always."""
        rng = random.Random(f"habits {seed}")
        steps: list[Step] = [self._form(rng, forms) for forms in self.opening]
        steps += _some(rng, self.reading)
        left = list(self.attempts)
        right = False
        for _ in range(min(self.patience, len(left))):
            attempt = rng.choices(left, [one.weight for one in left])[0]
            left.remove(attempt)
            steps += [*attempt.steps, self._form(rng, self.check)]
            right = attempt.right
            if right:
                break
            steps += _some(rng, self.again)
        steps.append(self._form(rng, self.closing))
        calls = tuple(step if isinstance(step, ToolCall) else ToolCall("shell", {"command": step}) for step in steps)
        return Path(calls, tuple(thought(rng) for _ in calls), right)

    def _form(self, rng: random.Random, forms: Sequence[Step]) -> Step:
        return forms[0] if len(forms) == 1 or rng.random() < self.usual else rng.choice(forms[1:])


def thought(rng: random.Random) -> float:
    """Seconds of thinking, drawn from `THINKING`."""
    at = rng.random()
    for (low, short), (high, long) in pairwise(THINKING):
        if at <= high:
            return float(short * (long / short) ** ((at - low) / (high - low)))
    return THINKING[-1][1]


def _some(rng: random.Random, steps: Sequence[Step]) -> list[Step]:
    chosen = [step for step in steps if rng.random() < 0.5]
    rng.shuffle(chosen)
    return chosen
