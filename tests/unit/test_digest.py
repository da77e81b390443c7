"""The state digest on the dummy engine: equal digests are equal futures, and what leads back is seen to lead back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bunshin_gym import StateDigest, ToolCall, Workspace
from bunshin_gym.state import DIGEST_SIZE, combine


@pytest.fixture
def root() -> Iterator[Workspace]:
    with Workspace(engine="dummy") as workspace:
        yield workspace


def after(root: Workspace, *commands: str) -> StateDigest:
    """The digest that a fork of the root has after some commands, each of a history of its own."""
    (fork,) = root.fork(1)
    assert isinstance(fork, Workspace)
    with fork:
        digest, origin = fork.digest(b"root"), b"root"
        for command in commands:
            fork.run(command)
            origin = combine(origin, command.encode())
            digest = fork.digest(origin)
        return digest


@pytest.mark.parametrize("command", ["ls", "echo hi", "cat /nothing; true", "pwd", "X=1; unset X"])
def test_a_call_that_changes_nothing_leads_back(root: Workspace, command: str) -> None:
    assert after(root, command) == after(root) == root.digest(b"another")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["echo a > f"], ["printf 'a\\n' > f"]),
        (["echo a > f", "rm f"], []),
        (["mkdir d", "rmdir d"], []),
        (["echo a > f", "echo b > g"], ["echo b > g", "echo a > f"]),
        (["echo a > f", "touch f"], ["echo a > f"]),
        (["cd /tmp", "X=1"], ["X=1; cd /tmp"]),
    ],
)
def test_histories_that_meet_have_one_loose_digest(root: Workspace, one: list[str], other: list[str]) -> None:
    first, second = after(root, *one), after(root, *other)
    assert first.loose == second.loose
    assert first.strict != second.strict or one[0].startswith("cd")


@pytest.mark.parametrize(
    "command",
    ["echo a > f", "mkdir d", "rm -r /var/tmp", "cd /tmp", "X=1", "export X=1", "unset HOME", "false", "sleep 60 &"],
)
def test_every_change_is_seen(root: Workspace, command: str) -> None:
    assert after(root, command).loose != after(root).loose


def test_background_jobs_count_by_history_in_forks_too(root: Workspace) -> None:
    assert after(root, "sleep 60 &", "ls") == after(root, "sleep 60 &")
    assert after(root, "ls", "sleep 60 &").loose != after(root, "sleep 60 &").loose
    root.run("sleep 60 &")
    before = root.digest(b"a job")
    assert "background" in before.unique
    assert after(root) == before


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("x = [1, 2]", "x = list(range(1, 3))", True),
        ("x = 1", "x = True", False),
        ("a = []; b = a", "a = []; b = []", False),
        ("x = {1: 2}", "x = {1: 3}", False),
        ("x = set([1, 2])", "x = set([1, 2])", True),
    ],
)
def test_python_variables(root: Workspace, one: str, other: str, equal: bool) -> None:
    digests = []
    for code in (one, other):
        with Workspace(engine="dummy") as workspace:
            workspace.call(ToolCall("python", {"code": code}))
            digests.append(workspace.digest(b"the same"))
    assert (digests[0] == digests[1]) == equal


def test_without_an_origin_what_cannot_be_compared_is_equal_to_nothing(root: Workspace) -> None:
    one, other = Workspace(engine="dummy"), Workspace(engine="dummy")
    with one, other:
        assert one.digest() == other.digest()
        for workspace in (one, other):
            workspace.run("sleep 60 &")
        assert one.digest() != other.digest()


def test_a_digest_has_its_size() -> None:
    with pytest.raises(ValueError, match="loose has 3 bytes"):
        StateDigest(b"abc", b"0" * DIGEST_SIZE)
    assert combine(b"a", b"b") != combine(b"ab") != combine(b"b", b"a")
