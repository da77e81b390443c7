"""Cut a call tree below a root into plain records, and grow another from them: how trees leave a process and return.

The other half of `tree.py`: it works under the tree's own lock, with the tree's own helpers.
"""

from __future__ import annotations

from collections.abc import Mapping

from bunshin_gym.node import Closable, Node, Step
from bunshin_gym.subtree import KeptNode, KeptState, KeptStep, Subtree
from bunshin_gym.tools import ToolResult
from bunshin_gym.tree import Tree

__all__ = ["cut", "graft"]


def cut(tree: Tree, root: Node) -> Subtree:
    """All that is known below `root`. The tree keeps it."""
    with tree._lock:
        nodes, numbers = [root], {root: 0}
        own: list[Step] = []
        for node in nodes:  # it grows meanwhile
            for step in (*node.steps.values(), *node.asides):
                if step.owns and step.target.linked:
                    numbers[step.target] = len(nodes)
                    nodes.append(step.target)
                    own.append(step)
        back = [step for node in nodes for step in node.steps.values() if not step.owns and step.target in numbers]
        which = {state: i for i, state in enumerate(dict.fromkeys(node.state for node in nodes if node.state))}
        return Subtree(
            [KeptState(s.loose, s.parts, s.verdict, s.frozen_verdict, tuple(s.volatile)) for s in which],
            [
                KeptNode(which[n.state] if n.state else None, n._verdict, n._frozen_verdict, tuple(n.volatile))
                for n in nodes
            ],
            [_kept(step, numbers) for step in own + back],
        )


def _kept(step: Step, numbers: Mapping[Node, int]) -> KeptStep:
    result = ToolResult("", duration=step.result.duration) if step.aside else step.result
    return KeptStep(numbers[step.source], numbers[step.target], step.edge, result, step.hits, step.aside)


def graft(tree: Tree, root: Node, subtree: Subtree) -> list[Closable]:
    """Grow what was cut in another process from `root`, below which nothing is known yet.

    Returns the snapshots that the tree let go of for it.
    """
    with tree._lock:
        nodes = [root]
        _remember(tree, root, subtree, 0)
        for kept in subtree.steps:
            source = nodes[kept.source]
            if kept.target < len(nodes):
                target = nodes[kept.target]
            else:
                target = Node.of_its_own(source) if kept.aside else Node(source)
            step = Step(kept.edge, kept.result, source, target, kept.aside, hits=kept.hits, recalled=True)
            tree._link(step, kept.result.size)
            if kept.target == len(nodes):
                nodes.append(target)
                _remember(tree, target, subtree, kept.target)
        return tree.evict()


def _remember(tree: Tree, node: Node, subtree: Subtree, number: int) -> None:
    """What is kept of a node, and of the state it is of."""
    kept = subtree.nodes[number]
    node.volatile |= frozenset(kept.volatile)
    node._verdict, node._frozen_verdict = kept.verdict, kept.frozen_verdict
    if kept.state is not None:
        state = subtree.states[kept.state]
        if node.state is None:
            tree._enter(node, state)
        if node.state is not None:
            node.state.volatile |= frozenset(state.volatile)
            node.state.verdict, node.state.frozen_verdict = state.verdict, state.frozen_verdict
