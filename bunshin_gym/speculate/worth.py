"""Whether a draft is worth its cost: what calls take, and what forking takes, both learned from what was seen.

A right guess saves the seconds its call takes (and those of calls that would have to be replayed first); a wrong one
has wasted them. Seconds in the background cost less than seconds somebody waits for, forking costs in full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from bunshin_gym.speculate.past import said, shape
from bunshin_gym.tools import ExitReason, ToolCall, ToolResult

__all__ = ["Worth"]

_KEPT = 20000
_LEAST = 0.01  # seconds a draft must be expected to win
_BACKGROUND = 0.2  # what a second in the background counts for
_FRESH = 0.3  # how much the last measurement counts
_OVER = (ExitReason.TIMEOUT, ExitReason.OUT_OF_MEMORY, ExitReason.WORKSPACE_LOST)


class Worth:
    """What calls take, by task and call, and by kind of call; `fork` and `seal`: seconds these take here."""

    def __init__(self, fork: float = 0.02, seal: float = 0.02) -> None:
        self.costs = {"fork": fork, "seal": seal}
        self._seconds: OrderedDict[Hashable, float | None] = OrderedDict()

    def learn(self, task: Hashable, call: ToolCall, result: ToolResult) -> None:
        """What the call gave. One that did not come to its end is not tried ahead of time again."""
        over = result.exit_reason in _OVER
        for key in self._keys(task, call)[: 1 if over else None]:
            known = self._seconds.pop(key, result.duration)
            mixed = None if known is None else (1 - _FRESH) * known + _FRESH * result.duration
            self._seconds[key] = None if over else mixed
        while len(self._seconds) > _KEPT:
            self._seconds.popitem(last=False)

    def seconds(self, task: Hashable, call: ToolCall) -> float:
        """What the call is expected to take: like the same one before, or one of its kind; 0 where nothing is known."""
        for key in self._keys(task, call):
            if key in self._seconds:
                return self._seconds[key] or 0.0
        return 0.0

    def cost(self, what: str, seconds: float) -> None:
        """What forking ("fork") or sealing ("seal") took this time."""
        self.costs[what] = (1 - _FRESH) * self.costs[what] + _FRESH * seconds

    def gain(self, probability: float, seconds: float, *, owed: float = 0.0, seal: bool = False) -> float:
        """Seconds that a draft is expected to win; 0 where it does not pay.

        `owed`: seconds of calls that are replayed first, by the rollout itself if not by the draft. `seal`: whether the
        rollout's workspace has to be sealed for it.
        """
        forking = self.costs["fork"] + (self.costs["seal"] if seal else 0.0)
        wasted = _BACKGROUND * (1 - probability) * (seconds + owed)
        gain = probability * (seconds + owed) - forking - wasted
        return gain if gain > _LEAST else 0.0

    @staticmethod
    def _keys(task: Hashable, call: ToolCall) -> list[Hashable]:
        """From the most particular to the most general."""
        one = said(call)
        if one is None:
            return [(task, call.key())]
        return [(task, one.text), (task, "kind", shape(one.text)), ("kind", shape(one.text))]
