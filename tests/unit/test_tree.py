from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bunshin_gym import ToolCall, ToolResult
from bunshin_gym.state import DIGEST_SIZE, StateDigest, combine
from bunshin_gym.tree import Edge, Node, Tree


class Token:
    """All a tree needs of a snapshot."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def edge(command: str, timeout: float = 1.0) -> Edge:
    return Edge(ToolCall("shell", {"command": command}), timeout)


def grow(tree: Tree, node: Node, *commands: str) -> Node:
    for command in commands:
        step, gone = tree.insert(node, edge(command), ToolResult(command, duration=1.0))
        assert not gone
        node = step.target
    return node


def test_the_same_calls_lead_to_the_same_node() -> None:
    tree = Tree()
    node = grow(tree, tree.root("a"), "x", "y")
    assert grow(tree, tree.root("a"), "x", "y") is node
    step = tree.match(tree.root("a"), edge("x"))
    assert step is not None and step.target is node.parent
    assert tree.match(tree.root("b"), edge("x")) is None
    assert tree.match(tree.root("a"), edge("x ")) is None
    assert tree.match(tree.root("a"), edge("x", timeout=2.0)) is None
    assert node.root is tree.root("a")
    assert [step.edge for step in node.path_from(node.root)] == [edge("x"), edge("y")]


def test_private_nodes_are_found_by_nobody_and_neither_are_those_below() -> None:
    tree = Tree()
    root = tree.root("a")
    alone = tree.insert(root, edge("date"), ToolResult("now"), private=True)[0].target
    below = tree.insert(alone, edge("x"), ToolResult("x"))[0].target
    assert tree.match(root, edge("date")) is None
    assert tree.match(alone, edge("x")) is None
    assert below.private
    assert tree.size == (0, 0, 0)


def test_the_nearest_snapshot_is_pinned() -> None:
    tree = Tree(max_snapshots=0)
    root = tree.root("a")
    tree.pin(root)
    token = Token()
    assert tree.attach(root, token) == []
    leaf = grow(tree, root, "x", "y")
    assert tree.nearest(leaf) == (root, root)
    assert tree.unpin(root) == []
    assert tree.unpin(root) == [token]
    assert tree.nearest(leaf) is None


def test_a_second_snapshot_of_a_node_is_handed_back() -> None:
    tree = Tree()
    first, second = Token(), Token()
    assert tree.attach(tree.root("a"), first) == []
    assert tree.attach(tree.root("a"), second) == [second]


def test_snapshots_used_longest_ago_go_first() -> None:
    tree = Tree(max_snapshots=2)
    root = tree.root("a")
    nodes = [grow(tree, root, name) for name in "xyz"]
    tokens = [Token() for _ in nodes]
    tree.attach(nodes[0], tokens[0])
    tree.attach(nodes[1], tokens[1])
    assert tree.nearest(nodes[0]) == (nodes[0], nodes[0])
    tree.unpin(nodes[0])
    assert tree.attach(nodes[2], tokens[2]) == [tokens[1]]


def test_a_forgotten_branch_goes_with_its_snapshots_but_not_with_pinned_ones() -> None:
    tree = Tree()
    root = tree.root("a")
    x = grow(tree, root, "x")
    y, z = grow(tree, x, "y"), grow(tree, x, "z")
    tokens = Token(), Token()
    tree.attach(y, tokens[0])
    tree.attach(z, tokens[1])
    tree.pin(z)
    assert tree.forget(x.step) == [tokens[0]]
    assert tree.match(root, edge("x")) is None
    assert edge("x") in root.volatile
    assert z.snapshot is tokens[1]
    assert tree.unpin(z) == [tokens[1]]
    assert tree.forget(x.step) == []
    assert tree.size == (0, 0, 0)


def test_whoever_stands_in_a_dropped_branch_goes_on_alone() -> None:
    tree = Tree()
    x = grow(tree, tree.root("a"), "x")
    tree.forget(x.step)
    child = tree.insert(x, edge("y"), ToolResult("y"))[0].target
    assert not child.linked
    assert tree.match(x, edge("y")) is None
    assert child.path_from(child.root)[0] is x.step


def test_results_are_bounded_and_the_end_that_was_used_longest_ago_goes_first() -> None:
    tree = Tree(max_bytes=20_000)
    root = tree.root("a")
    for i in range(100):
        node = tree.insert(root, edge(str(i)), ToolResult("x" * 744))[0].target
        tree.insert(node, edge("below"), ToolResult(""))
        assert tree.match(root, edge("0")) is not None
        assert tree.size[1] <= 20_000
    assert tree.match(root, edge("1")) is None
    assert tree.match(root, edge("99")) is not None


def test_what_leads_to_steps_in_use_outlives_ends_that_are_not() -> None:
    tree = Tree(max_bytes=20_000)
    root = tree.root("a")
    deep = grow(tree, root, *"uvwxyz")
    for i in range(200):
        tree.insert(root, edge(str(i)), ToolResult("x" * 744))
        assert deep.parent is not None
        assert tree.match(deep.parent, edge("z")) is not None  # only the end is used
    assert deep.linked and [step.edge.call.args["command"] for step in deep.path_from(root)] == list("uvwxyz")


def test_clearing_hands_back_every_snapshot_once() -> None:
    tree = Tree()
    tokens = [Token() for _ in range(3)]
    for name, token in zip("xyz", tokens, strict=True):
        node = grow(tree, tree.root("a"), name)
        tree.pin(node)
        tree.attach(node, token)
    assert tree.clear() == tokens
    assert tree.clear() == []


def test_histories_of_any_length_have_names() -> None:
    tree = Tree()
    root = node = tree.root("a")
    for _ in range(5_000):
        node = tree.insert(node, edge("x"), ToolResult(""))[0].target
    other = tree.insert(root, edge("x"), ToolResult(""))[0].target
    assert node.parent is not None and len({node.ident, node.parent.ident, other.ident, root.ident}) == 4
    assert Tree().root("a").ident == root.ident


class Growth(RuleBasedStateMachine):
    """Whatever is done to a tree: its books are right, and each snapshot is handed back at most once."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree(max_bytes=5_000, max_snapshots=3)
        self.nodes = [self.tree.root("a")]
        self.pinned: list[Node] = []
        self.tokens: list[Token] = []

    def take(self, gone: list[Token]) -> None:  # type: ignore[override]
        for token in gone:
            token.close()

    @rule(
        at=st.integers(0, 50), command=st.sampled_from("abc"), private=st.booleans(), size=st.integers(0, 1500),
        digest=st.sampled_from([b"", *(bytes([n]) * DIGEST_SIZE for n in range(3))]), same=st.booleans(),
        aside=st.booleans(),
    )  # fmt: skip
    def insert(self, at: int, command: str, private: bool, size: int, digest: bytes, same: bool, aside: bool) -> None:
        node = self.nodes[at % len(self.nodes)]
        strict = digest if same else combine(digest, str(len(self.nodes)).encode())
        said = StateDigest(digest, strict) if digest else None
        step, gone = self.tree.insert(node, edge(command), ToolResult("x" * size), said, private=private, aside=aside)
        assert step.aside == (aside or step.target.private)
        if aside and step.owns:
            assert step.target.precarious
        self.take(gone)  # type: ignore[arg-type]
        self.nodes.append(step.target)

    @rule(at=st.integers(0, 50), command=st.sampled_from("abc"), strict=st.booleans())
    def match(self, at: int, command: str, strict: bool) -> None:
        node = self.nodes[at % len(self.nodes)]
        step = self.tree.match(node, edge(command), strict=strict)
        if step is not None:
            assert step.source is node and step.linked and step.target.linked
            self.nodes.append(step.target)
            self.take(self.tree.evict())  # type: ignore[arg-type]

    @rule(at=st.integers(0, 50))
    def attach(self, at: int) -> None:
        node = self.nodes[at % len(self.nodes)]
        # As the executor does it: a node that nobody can find gets a snapshot only while somebody pins it.
        if node.linked or node.pins:
            self.tokens.append(Token())
            self.take(self.tree.attach(node, self.tokens[-1]))  # type: ignore[arg-type]

    @rule(at=st.integers(0, 50))
    def pin(self, at: int) -> None:
        node = self.nodes[at % len(self.nodes)]
        self.tree.pin(node)
        self.pinned.append(node)

    @rule(at=st.integers(0, 50))
    def unpin(self, at: int) -> None:
        if self.pinned:
            self.take(self.tree.unpin(self.pinned.pop(at % len(self.pinned))))  # type: ignore[arg-type]

    @rule(at=st.integers(0, 50))
    def forget(self, at: int) -> None:
        node = self.nodes[at % len(self.nodes)]
        if node.step is not None:
            self.take(self.tree.forget(node.step))  # type: ignore[arg-type]

    @rule(at=st.integers(0, 50))
    def revive(self, at: int) -> None:
        found = self.tree.revive(self.nodes[at % len(self.nodes)])
        if found is not None:
            assert found.linked and found.root is self.nodes[0]
            self.nodes.append(found)
        self.take(self.tree.evict())  # type: ignore[arg-type]

    @invariant()
    def books_are_right(self) -> None:
        found, stack = [], [self.tree.root("a")]
        while stack:
            node = stack.pop()
            here = [*node.steps.values(), *node.asides]
            assert not any(step.aside for step in node.steps.values()) and all(step.aside for step in node.asides)
            stack += [step.target for step in here if step.owns]
            found += here
        linked, size, held = self.tree.size
        assert linked == len(found)
        assert size == sum(step.size for step in found) <= 5_000
        assert all(step.linked and (step.target.linked or not step.owns) for step in found)
        nodes = {self.tree.root("a"), *(step.target for step in found if step.owns)}
        states = {node.state for node in nodes if node.state is not None}
        assert self.tree.states == len(states)
        for state in states:
            assert set(state.nodes) == {node for node in nodes if node.state is state}
            assert all(step.linked and step.source in state.nodes for step in state.steps.values())
            known = {edge for node in state.nodes for edge in node.steps if edge not in state.volatile}
            assert known <= set(state.steps) | state.volatile
        holding = [node for node in dict.fromkeys(self.nodes) if node.snapshot is not None]
        assert held == len(holding)
        assert sum(node.pins == 0 for node in holding) <= 3
        assert not any(node.snapshot.closed for node in holding)  # type: ignore[union-attr]
        assert sum(token.closed for token in self.tokens) == len(self.tokens) - held
        assert all(token.closed <= 1 for token in self.tokens)


TestGrowth = Growth.TestCase
TestGrowth.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
