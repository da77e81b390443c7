"""Where snapshots are kept and which go first, and what need not be replayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unit.rollouts import Everywhere, prepare, run
from unit.test_tree import Token, edge, grow

from bunshin_gym import ToolResult
from bunshin_gym.debt import owed
from bunshin_gym.executor import Executor
from bunshin_gym.policy import Costs, DefaultPolicy, Site
from bunshin_gym.reuse import expected
from bunshin_gym.state import DIGEST_SIZE, StateDigest
from bunshin_gym.tree import Node, Tree


def digest(name: str, times: str = "") -> StateDigest:
    return StateDigest(name.encode().ljust(DIGEST_SIZE), (name + times).encode().ljust(DIGEST_SIZE))


def walk(tree: Tree, node: Node, *steps: tuple[str, str]) -> list[Node]:
    """Calls of a second each, and the states they lead to; no two with the same times."""
    nodes = []
    for number, (command, state) in enumerate(steps):
        found = digest(state, f" {number}")
        node = tree.insert(node, edge(command), ToolResult(command, duration=1.0), found)[0].target
        nodes.append(node)
    return nodes


@pytest.fixture
def root() -> Iterator[tuple[Tree, Node]]:
    tree = Tree()
    node = tree.root("a")
    tree.settle(node, digest("R"))
    yield tree, node
    tree.clear()


def calls(base: Node, node: Node, *, strict: bool = False) -> str:
    return " ".join(step.edge.call.args["command"] for step, _ in owed(base, node, strict=strict).steps)


def test_what_leads_back_to_its_state_is_not_owed(root: tuple[Tree, Node]) -> None:
    tree, start = root
    a, test, b, undo, c = walk(tree, start, ("a", "A"), ("test", "A"), ("b", "B"), ("undo", "A"), ("c", "C"))
    assert calls(start, c) == "a c"
    assert calls(start, test) == "a"
    assert calls(a, undo) == "" and owed(a, undo).start is undo
    assert calls(start, b) == "a b"
    assert calls(start, c, strict=True) == "a test b undo c"
    assert owed(start, c).seconds == 2.0


def test_what_notices_times_needs_its_own_history(root: tuple[Tree, Node]) -> None:
    tree, start = root
    last = walk(tree, start, ("a", "A"), ("test", "A"), ("make", "M"), ("b", "B"), ("undo", "M"))[-1]
    assert calls(start, last) == "a test make"


def test_without_states_everything_is_owed() -> None:
    tree = Tree()
    assert calls(tree.root("a"), grow(tree, tree.root("a"), "x", "y", "x")) == "x y x"


def test_who_stands_above_may_come_down_and_who_has_left_does_not() -> None:
    tree = Tree()
    start = tree.root("a")
    start.begun = 4
    node = grow(tree, start, "x", "y")
    assert expected(node, 4, 0.5) == 0.25 * 3  # three at the root, two steps away
    step = tree.match(start, edge("x"))
    assert step is not None
    step.hits += 2  # two of them have come nearer
    assert expected(node, 4, 0.5) == 0.25 * 1 + 0.5 * 2
    grow(tree, start, "z")  # and the last one has gone elsewhere
    assert expected(node, 4, 0.5) == 0.5 * 2
    assert expected(node, 4, 0.0) == 0.0


def test_a_snapshot_has_to_save_more_than_it_takes() -> None:
    node, costs = Tree().root("a"), Costs(seal=0.5, fork=0.1)
    policy = DefaultPolicy(0.2)
    site = lambda replay, reuse, group=8: Site(node, replay, reuse, group, costs)  # noqa: E731
    assert policy.place(site(10.0, 0.1)) and not policy.place(site(10.0, 0.01))
    assert not policy.place(site(0.15, 100.0))
    assert not policy.place(site(10.0, 1.0, group=1))
    assert policy.value(site(0.05, 5.0)) == 0.0
    costs.sealed(2.0)
    assert costs.seal == 2.0  # the first measurement takes the place of the guess
    costs.sealed(1.0)
    assert 1.0 < costs.seal < 2.0


def test_the_least_valuable_snapshot_goes_first() -> None:
    tree = Tree(max_snapshots=2)
    start = tree.root("a")
    nodes = [grow(tree, start, name) for name in "xyz"]
    tokens = {node: Token() for node in nodes}
    tree.value = {nodes[0]: 3.0, nodes[1]: 1.0, nodes[2]: 2.0}.__getitem__
    gone = [token for node in nodes for token in tree.attach(node, tokens[node])]
    assert gone == [tokens[nodes[1]]]


def test_a_call_that_led_back_to_its_state_is_not_replayed_and_gets_no_snapshot() -> None:
    policy = Everywhere()
    executor = Executor(group=3, audit=0.0, policy=policy)
    first, second = executor.open("task", prepare), executor.open("task", prepare)
    for rollout in (first, second):
        run(executor, rollout, "echo a > f")
    run(executor, second, "echo b > g")  # so it has a workspace: a fork of the snapshot after the first call
    for rollout in (first, second):
        run(executor, rollout, "echo c > h")
        run(executor, rollout, "echo a > f")  # the same content once more: only the time is another
    assert executor.stats.snapshots == 1 + len(policy.asked) and len(policy.asked) == 4
    assert executor.stats.replays == 0
    third = executor.open("task", prepare)
    for command in ("echo a > f", "echo c > h", "echo a > f"):
        assert run(executor, third, command).exit_code == 0
    assert third.workspace is None
    assert run(executor, third, "cat f g h").output.splitlines()[-1] == "c"
    assert (executor.stats.replays, executor.stats.forks) == (0, 2)
    for rollout in (first, second, third):
        rollout.close()
    executor.close()
