"""What a rollout owes: the calls that hits have skipped, between where its workspace stands and where it is.

A call that led back to the state it was made in, and a detour that came back to one, need not be made again: a
workspace at one history of a state does for any other. But a call that can notice which history it is made in
(modification times, say) has to find its own, with every call before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bunshin_gym.looks import strict as notices_history
from bunshin_gym.tree import Node, Step

__all__ = ["Debt", "notices", "owed", "unreplayable"]


@dataclass(frozen=True)
class Debt:
    """`start`: where a workspace stands at once; `steps`: the calls to make, each with where it then stands."""

    start: Node
    steps: tuple[tuple[Step, Node], ...]

    @property
    def seconds(self) -> float:
        """What they took when they were made."""
        return sum(step.seconds for step, _ in self.steps)


def owed(base: Node, node: Node, *, strict: bool = False) -> Debt:
    """The debt at `node` of a workspace that stands at `base`, or at another node of its state.

    `strict`: all of it, since the next call notices the history. Raises ValueError where `base` is not `node` or above.
    """
    path = node.path_from(base)
    exact = len(path) if strict else 1 + max((i for i, step in enumerate(path) if notices(step)), default=-1)
    last = {step.target.state: i for i, step in enumerate(path) if i >= exact and step.target.state is not None}
    start, steps, i = base, list[tuple[Step, Node]](), 0
    while i < len(path):
        here = steps[-1][1] if steps else start
        back = last.get(here.state, -1) if i >= exact and here.state is not None else -1
        if back < i:
            steps.append((path[i], path[i].target))
            i += 1
            continue
        if steps:
            steps[-1] = (steps[-1][0], path[back].target)
        else:
            start = path[back].target
        i = back + 1
    return Debt(start, tuple(steps))


def notices(step: Step) -> bool:
    """Whether the call can notice in which of the histories of a state it is made."""
    return notices_history(step.edge.call)


def unreplayable(node: Node, start: Node | None = None) -> bool:
    """Whether a call on the way from `start` (the root unless given) to `node` depends on more than the state."""
    path = node.path_from(start if start is not None else node.root)
    return any(step.aside or step.edge in step.source.volatile for step in path)
