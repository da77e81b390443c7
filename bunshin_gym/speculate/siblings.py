"""Siblings and earlier epochs: what other rollouts of the task did where they had just done the same.

The context is the last calls, the longest known one first (three, two, one, none); a call counts for its text, whatever
directory its policy likes to change to before. A call that came next in a known context may come next again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping

from bunshin_gym.speculate.past import Past, Said, said
from bunshin_gym.speculate.predict import Hint
from bunshin_gym.tools import ToolCall

__all__ = ["Siblings"]

_ORDERS = (3, 2, 1, 0)
_NAMED = 12


class Siblings:
    """What came next, by task and context. The tasks seen last are kept, `tasks` of them, each with `contexts`."""

    name = "siblings"
    prior: Mapping[str, float] = {}

    def __init__(self, tasks: int = 256, contexts: int = 20000) -> None:
        self._tasks: OrderedDict[Hashable, _Task] = OrderedDict()
        self._most = tasks
        self._contexts = contexts

    def hints(self, past: Past) -> list[Hint]:
        known = self._tasks.get(past.task)
        if known is None:
            return []
        done = set(map(_key, past.recent))
        found: dict[Hashable, Hint] = {}
        for order in _ORDERS:
            after = known.after.get(_context(past, order))
            if after is None:
                continue
            total = sum(after.counts.values())
            ranked = sorted(after.counts, key=lambda key: (-after.counts[key], -after.last[key]))
            for rank, key in enumerate(ranked[:_NAMED]):
                if key in found:
                    continue
                share = after.counts[key] / (total + 1)
                evidence = {
                    f"siblings {order}": 1.0,
                    f"siblings {order} share": share,
                    f"siblings {order} first": float(rank == 0),
                    f"siblings {order} {min(total, 4)} of {min(after.counts[key], 4)}": 1.0,
                    "siblings done before": float(key in done),
                    f"siblings {min(len(known.said[key][1]), 4)} rollouts": 1.0,
                }
                found[key] = Hint(_again(past, known.said[key][0]), evidence)
            if order and len(found) >= _NAMED:
                break
        return list(found.values())

    def learn(self, past: Past, call: ToolCall) -> None:
        known = self._tasks.setdefault(past.task, _Task())
        self._tasks.move_to_end(past.task)
        while len(self._tasks) > self._most:
            self._tasks.popitem(last=False)
        known.learn(past, call, self._contexts)


class _After:
    """What came after one context."""

    def __init__(self) -> None:
        self.counts: dict[Hashable, int] = {}
        self.last: dict[Hashable, int] = {}


class _Task:
    def __init__(self) -> None:
        self.after: OrderedDict[Hashable, _After] = OrderedDict()
        self.said: dict[Hashable, tuple[ToolCall, set[int]]] = {}
        self._number = 0
        self._rollouts = 0

    def learn(self, past: Past, call: ToolCall, most: int) -> None:
        self._number += 1
        self._rollouts += int(not past.made)
        key = _key(call)
        self.said.setdefault(key, (call, set()))[1].add(self._rollouts)
        for order in _ORDERS:
            if order > len(past.made) + 1:
                continue
            after = self.after.setdefault(_context(past, order), _After())
            after.counts[key] = after.counts.get(key, 0) + 1
            after.last[key] = self._number
        while len(self.after) > most:
            self.after.popitem(last=False)


def _key(call: ToolCall) -> Hashable:
    one = said(call)
    return call.key() if one is None else (one.text, one.way)


def _context(past: Past, order: int) -> Hashable:
    """The last calls; where there are fewer, that the rollout begins."""
    keys = [_key(call) for call in past.recent[:order]]
    return (order, *keys, *([None] * (order - len(keys))))


def _again(past: Past, call: ToolCall) -> ToolCall:
    """The call, as this rollout would say it."""
    one = said(call)
    like = past.like()
    if one is None or like is None or like.name != call.name:
        return call
    return Said(past.habit, one.text, one.way).spoken(call)
