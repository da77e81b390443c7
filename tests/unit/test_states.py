"""The executor with `key="state"`: histories that meet share what is known, and nobody sees the difference."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.rollouts import Begin, prepare, run

from bunshin_gym import Snapshot, Workspace, WorkspaceError, WorkspaceLost
from bunshin_gym.engines import dummy_commands
from bunshin_gym.executor import Executor
from bunshin_gym.rollout import Rollout
from bunshin_gym.tree import Tree


@pytest.fixture
def executor() -> Iterator[Executor]:
    made = Executor(group=4, audit=0)
    yield made
    made.close()


def counting(monkeypatch: pytest.MonkeyPatch, name: str = "counting") -> list[int]:
    """A command that says how often it was run, in all workspaces together; and that list."""
    runs: list[int] = []

    def command(session: object, argv: list[str], io: object) -> int:
        runs.append(len(runs))
        io.out(b"%d\n" % runs[-1])  # type: ignore[attr-defined]
        return 0

    monkeypatch.setitem(dummy_commands.COMMANDS, name, command)  # type: ignore[arg-type]
    return runs


def test_a_call_that_changes_nothing_leads_back(executor: Executor, begin: Begin) -> None:
    rollout = begin()
    root = rollout.node
    for command in ("ls", "cat ready", "pwd"):
        run(executor, rollout, command)
        assert rollout.node is root
    run(executor, rollout, "cat nothing")  # $? is another now
    assert rollout.node is not root
    run(executor, rollout, "ls")
    assert rollout.node is root


def test_what_was_read_may_be_read_in_any_order(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    for command in ("ls", "cat ready", "pwd"):
        run(executor, first, command)
    for command in ("pwd", "cat ready", "ls", "ls"):
        run(executor, second, command)
    assert (executor.stats.hits, executor.stats.hits_by_state) == (4, 0)
    assert second.workspace is None


def test_histories_that_meet_share_what_follows(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    for command in ("echo a > f", "echo b > g", "cat f g"):
        run(executor, first, command)
    for command in ("printf 'b\\n' > g", "printf 'a\\n' > f"):
        run(executor, second, command)
    assert first.node.state is second.node.state and first.node is not second.node
    own = second.workspace
    assert run(executor, second, "cat f g").output == "a\nb\n"
    assert executor.stats.hits_by_state == 1
    assert run(executor, second, "echo c >> f; cat f").output == "a\nc\n"
    assert second.workspace is own  # the hit changed nothing: it is still where the rollout is


def test_a_debt_is_paid_from_another_history_of_the_state(executor: Executor, begin: Begin) -> None:
    first, second, third = begin(), begin(), begin()
    run(executor, first, "echo a > f; echo b > g")
    place = executor.keep(first)
    run(executor, first, "echo c >> f")
    run(executor, second, "echo b > g; echo a > f")
    assert second.node.state is place.node.state
    second.drop()
    assert run(executor, second, "cat f g").output == "a\nb\n"
    assert (executor.stats.forks, executor.stats.replays) == (2, 0)
    assert second.at is place.node and second.base is second.node
    run(executor, second, "echo d >> g")
    assert run(executor, third, "echo b > g; echo a > f").output == ""
    assert run(executor, third, "echo d >> g").output == ""
    assert executor.stats.hits == 2
    assert run(executor, third, "cat g").output == "b\nd\n"
    place.release()


def test_a_call_that_can_notice_times_is_answered_from_its_own_history_only(
    executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(session: object, argv: list[str], io: object) -> int:
        """Says which of f and g was written later."""
        times = session.files.times  # type: ignore[attr-defined]
        io.out(b"f\n" if times["/work/f"] > times["/work/g"] else b"g\n")  # type: ignore[attr-defined]
        return 0

    monkeypatch.setitem(dummy_commands.COMMANDS, "make", make)  # type: ignore[arg-type]
    first, second, third = begin(), begin(), begin()
    for rollout in (first, third):
        run(executor, rollout, "echo a > f")
        run(executor, rollout, "echo b > g")
    run(executor, second, "echo b > g")
    run(executor, second, "echo a > f")
    assert first.node.state is second.node.state
    assert run(executor, first, "make").output == "g\n"
    place = executor.keep(first)
    assert run(executor, second, "make").output == "f\n"
    second.drop()
    assert run(executor, second, "make; pwd").output == "f\n/work\n"  # not in a fork of the first one's snapshot
    assert run(executor, third, "make").output == "g\n"
    assert third.workspace is None
    place.release()


def later(session: object, argv: list[str], io: object) -> int:
    """Says which of f and g was written later; as `make` it counts as a call that can notice times."""
    times = session.files.times  # type: ignore[attr-defined]
    io.out(b"f\n" if times["/work/f"] > times["/work/g"] else b"g\n")  # type: ignore[attr-defined]
    return 0


def test_a_debt_with_a_call_that_can_notice_times_is_not_paid_from_another_history(
    executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(dummy_commands.COMMANDS, "make", later)  # type: ignore[arg-type]
    first, second = begin(), begin()
    for rollout, order in ((first, "fg"), (second, "gf")):
        for name in order:
            run(executor, rollout, f"echo x > {name}")
    assert first.node.state is second.node.state
    place = executor.keep(first)
    assert run(executor, second, "make > out; cat out").output == "f\n"
    second.drop()
    assert run(executor, second, "cat out; echo").output == "f\n\n"
    assert executor.stats.replay_mismatches == 0
    # And in the other's own workspace neither, wherever it is when the debt is paid.
    third = begin()
    for command in ("echo x > g", "echo x > f"):
        run(executor, third, command)
    snapshot = place.node.snapshot
    assert isinstance(snapshot, Snapshot)
    (fork,) = snapshot.fork(1)
    assert isinstance(fork, Workspace)
    third.adopt(fork, place.node, third.node)
    assert run(executor, third, "make > out; cat out").output == "f\n"
    assert run(executor, third, "cat out g").output == "f\nx\n"
    assert executor.stats.replay_mismatches == 0
    place.release()


@pytest.mark.parametrize("calls", [("X=1", "unset X"), ("export X=1", "unset X")])
def test_a_hit_may_lead_back_above_the_workspace(executor: Executor, begin: Begin, calls: tuple[str, str]) -> None:
    first, second = begin(), begin()
    root = first.node
    for command in calls:
        run(executor, first, command)
    assert first.node is root
    run(executor, second, calls[0])
    run(executor, second, "pwd")
    assert second.base is first.trail[0].target  # it stands below the root, and then the rollout is back there
    run(executor, second, calls[1])
    assert second.node is root
    assert run(executor, second, "cat ready; echo $X").output == "prepared\n\n"


def test_what_counts_by_its_origin_is_told_apart_by_times_too(
    executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that keeps in its memory what it saw of the times: nobody can look into it, so history has to count."""
    origins: list[bytes] = []
    digest = Workspace.digest

    def listen(self: Workspace, origin: bytes) -> object:
        origins.append(origin)
        return digest(self, origin)

    monkeypatch.setitem(dummy_commands.COMMANDS, "make", later)  # type: ignore[arg-type]
    monkeypatch.setattr(Workspace, "digest", listen)
    first, second = begin(), begin()
    for rollout, order in ((first, "fg"), (second, "gf")):
        for name in order:
            run(executor, rollout, f"echo x > {name}")
    assert first.node.state is second.node.state
    made = []
    for rollout in (first, second):
        run(executor, rollout, "make")
        made.append(origins[-1])
    assert made[0] != made[1]


def test_siblings_of_a_state_share_a_call_in_flight(
    executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    runs = []

    def slow(session: object, argv: list[str], io: object) -> int:
        runs.append(1)
        begun.set()
        go.wait(20)
        io.out(b"done\n")  # type: ignore[attr-defined]
        return 0

    monkeypatch.setitem(dummy_commands.COMMANDS, "slow", slow)  # type: ignore[arg-type]
    first, second, third = begin(), begin(), begin()
    for rollout, order in ((first, "fg"), (second, "gf"), (third, "gf")):
        for name in order:
            run(executor, rollout, f"echo {name} > {name}")
    results: dict[int, object] = {}

    def ask(number: int, rollout: Rollout) -> None:
        try:
            results[number] = run(executor, rollout, "slow").output
        except WorkspaceError as error:
            results[number] = error

    threads = [threading.Thread(target=ask, args=pair) for pair in enumerate((first, second, third))]
    threads[0].start()
    assert begun.wait(20)
    threads[1].start()
    threads[2].start()
    third.close()  # who waits and is closed leaves at once
    threads[2].join(20)
    assert isinstance(results[2], WorkspaceLost) and 0 not in results
    go.set()
    for thread in threads:
        thread.join(20)
    assert results[0] == results[1] == "done\n" and len(runs) == 1
    assert executor.stats.waits == 1


def test_a_verdict_is_given_once_a_state_also_when_asked_for_at_once(executor: Executor, begin: Begin) -> None:
    asked: list[Workspace] = []
    begun, go = threading.Event(), threading.Event()

    def verifier(workspace: Workspace) -> float:
        asked.append(workspace)
        begun.set()
        go.wait(20)
        return float(workspace.run("cat f").output == "a\n")

    rollouts = [begin() for _ in range(3)]
    for rollout, command in zip(rollouts, ("echo a > f", "printf 'a\\n' > f", "touch f; echo a > f"), strict=True):
        run(executor, rollout, command)
    rewards: list[float] = []
    threads = [threading.Thread(target=lambda r=r: rewards.append(executor.verify(r, verifier))) for r in rollouts]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    go.set()
    for thread in threads:
        thread.join(20)
    assert rewards == [1.0] * 3 and len(asked) == 1
    assert executor.stats.verdicts_shared == 2


def test_an_audit_gives_way_to_calls_that_somebody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    behind: list[Workspace] = []
    monkeypatch.setattr(Workspace, "background", lambda workspace, on: behind.append(workspace) or on)
    executor = Executor(group=4, audit=1.0)
    first, second = (executor.open("task", prepare) for _ in range(2))
    for rollout in (first, second):
        run(executor, rollout, "echo a > f")
    assert executor.auditor.drain(20)
    run(executor, second, "echo b > f")
    assert executor.stats.audits == 1
    assert len(behind) == 1 and behind[0] not in (first.workspace, second.workspace)
    for rollout in (first, second):
        rollout.close()
    executor.close()


def test_an_audit_finds_an_answer_that_is_not_true_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor(group=4, audit=1.0)
    runs = counting(monkeypatch)
    first, second, third = (executor.open("task", prepare) for _ in range(3))
    try:
        assert run(executor, first, "counting").output == "0\n"
        assert run(executor, first, "ls").output == "ready\n"
        assert run(executor, second, "ls").output == "ready\n"
        assert executor.auditor.drain(20)
        assert (executor.stats.audits, executor.stats.false_hits) == (1, 0)
        assert run(executor, second, "counting").output == "0\n"  # believed, so far
        assert executor.auditor.drain(20)
        assert (executor.stats.audits, executor.stats.false_hits) == (2, 1)
        assert "counting" in executor.stats.false_hit_calls[0]
        assert run(executor, third, "counting").output == "2\n"  # not believed any more
        assert len(runs) == 3
    finally:
        for rollout in (first, second, third):
            rollout.close()
        executor.close()


def test_a_call_that_leads_to_two_states_is_not_trusted(
    executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that make the same call at once without waiting for each other, and come to different states."""
    runs = counting(monkeypatch)
    first, second, third = begin(), begin(), begin()
    match = executor.tree.match
    run(executor, first, "counting > f")
    monkeypatch.setattr(executor.tree, "match", lambda *a, **k: None)
    executor._unshared.add(first.trail[0].edge)
    run(executor, second, "counting > f")
    monkeypatch.setattr(executor.tree, "match", match)
    assert (run(executor, first, "cat f").output, run(executor, second, "cat f").output) == ("0\n", "1\n")
    assert first.node is not second.node
    run(executor, third, "counting > f")
    assert run(executor, third, "cat f").output == "2\n"
    assert len(runs) == 3


def test_a_rollout_whose_node_was_evicted_shares_again(begin: Begin) -> None:
    executor = Executor(group=4, audit=0, tree=Tree(max_bytes=6_000))
    first, second = executor.open("task", prepare), executor.open("task", prepare)
    for command in ("X=1", "Y=2"):
        run(executor, first, command)
    for number in range(20):
        run(executor, second, f"echo {number} > f")
    assert not first.node.linked
    run(executor, first, "Z=3")
    assert first.node.linked and executor.tree.size[1] <= 6_000
    third = executor.open("task", prepare)
    before = executor.stats.hits
    for command in ("X=1", "Y=2", "Z=3"):
        run(executor, third, command)
    assert third.node is first.node and executor.stats.hits == before + 3
    for rollout in (first, second, third):
        rollout.close()
    executor.close()


def test_a_rollout_whose_node_was_evicted_and_made_anew_stands_there(begin: Begin) -> None:
    executor = Executor(group=4, audit=0, tree=Tree(max_bytes=6_000))
    rollouts = [executor.open("task", prepare) for _ in range(3)]
    run(executor, rollouts[0], "X=1")
    run(executor, rollouts[0], "Y=2")
    for number in range(20):
        run(executor, rollouts[1], f"echo {number} > f")
    old = rollouts[0].node
    for command in ("X=1", "Y=2", "Z=3"):
        run(executor, rollouts[2], command)
    assert not old.linked and executor.stats.hits == 0
    assert run(executor, rollouts[0], "Z=3").output == ""
    assert executor.stats.hits == 1 and rollouts[0].node is rollouts[2].node
    assert run(executor, rollouts[0], "echo $X $Y $Z").output == "1 2 3\n"
    for rollout in rollouts:
        rollout.close()
    executor.close()


def test_a_digest_that_fails_makes_a_history(executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = begin(), begin()

    def fail(self: Workspace, origin: bytes) -> None:
        raise WorkspaceError("cannot take a digest: no")

    monkeypatch.setattr(Workspace, "digest", fail)
    for rollout in (first, second):
        assert run(executor, rollout, "ls").output == "ready\n"
        assert run(executor, rollout, "cat ready").output == "prepared\n"
    assert executor.stats.hits == 2 and executor.stats.digests_failed > 0
    assert first.node is second.node and first.node.state is None


COMMANDS = (
    "ls", "cat f", "cat g", "echo a > f", "echo a > g", "echo b >> f", "rm f", "mkdir d", "rmdir d", "cd d", "cd ..",
    "X=1", "X=2", "echo $X $?", "unset X", "export X", "env", "false", "cp f g", "cat f | wc -l", "touch f", "pwd",
    "exit 3", "sleep 0.001", "printf 'a\\n' > f", "mv g f", "ls d", "echo $PWD > g",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(COMMANDS)), max_size=30),
    st.sets(st.integers(0, 29)),
    st.integers(1, 40),
)
def test_what_rollouts_see_is_what_they_see_without_a_cache(
    calls: list[tuple[int, str]], drops: set[int], steps: int
) -> None:
    """Any rollouts, in any order, with workspaces lost on the way, and a tree that is much too small."""
    seen = []
    for cache, key, tree in (
        (False, "state", Tree()),
        (True, "state", Tree()),
        (True, "history", Tree()),
        (True, "state", Tree(max_bytes=steps * 800, max_snapshots=1)),
    ):
        executor = Executor(cache=cache, key=key, tree=tree, group=3, audit=0.5, snapshot_seconds=0.0005)  # type: ignore[arg-type]
        rollouts = [executor.open("task", prepare) for _ in range(3)]
        results = []
        for number, (who, command) in enumerate(calls):
            if number in drops and cache:
                rollouts[who].drop()
            result = run(executor, rollouts[who], command)
            results.append((result.output, result.exit_code, result.exit_reason))
        assert executor.auditor.drain(20)
        assert executor.stats.false_hits == executor.stats.replay_mismatches == 0
        for rollout in rollouts:
            rollout.close()
        executor.close()
        seen.append(results)
    assert seen[1:] == [seen[0]] * 3
