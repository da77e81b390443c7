"""How many rollouts are expected to come for a snapshot at a node, from what the tree has seen of them so far.

A rollout *stands* at a node from its arrival until its next call leads away. Who stands above may come down here: at
each step it makes the same call as somebody before it with the chance that calls have been answered with so far. Who
stands here, or below without a snapshot in between, has come by answers and may need a workspace with its next call.
"""

from __future__ import annotations

from itertools import islice

from bunshin_gym.tree import Node

__all__ = ["expected"]

# Of a state's nodes, and of the nodes below one, so many are looked at.
_MOST = 64


def expected(node: Node, group: int, follow: float) -> float:
    """How many are expected, beside the one that has just come here. `follow`: the chance of the same call, 0 to 1.

    `group`: how many rollouts are begun at the root, at least. Read without the tree's lock: an estimate.
    """
    here = list(islice(node.state.nodes, _MOST)) if node.state is not None and node.linked else [node]
    found = max(0.0, sum(_standing(one, group) for one in here) - 1.0) + _below(node, group)
    chance, at = follow, node.parent
    while at is not None and chance > 0.01:
        found += chance * _standing(at, group)
        chance, at = chance * follow, at.parent
    return found


def _below(node: Node, group: int) -> float:
    found, queue, looked = 0.0, [node], 0
    while queue and looked < _MOST:
        at = queue.pop()
        looked += 1
        for step in list(at.steps.values()):
            if step.owns and step.target.snapshot is None:
                found += _standing(step.target, group)
                queue.append(step.target)
    return found


def _standing(node: Node, group: int) -> int:
    came = node.begun + 1 + node.step.hits if node.step is not None else max(group, node.begun)
    left = sum(1 + step.hits for step in list(node.steps.values()) if step.target is not node)
    return max(0, came - left)
