"""One memory budget: what is let go of, who waits, and that nobody sees the difference."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.rollouts import SPEC, Begin, Everywhere, prepare, run

from bunshin_gym import (
    BunshinVectorEnv,
    Executor,
    MemoryBudgetExceeded,
    RolloutPool,
    ToolCall,
    Workspace,
    WorkspaceBusy,
    WorkspaceError,
    WorkspaceLost,
    parking,
)
from bunshin_gym.engines.dummy import DummySnapshot, DummyWorkspace, Faults
from bunshin_gym.rollout import Rollout
from bunshin_gym.usage import Holding

MB = 1 << 20


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    """With a budget so small that whoever is not at work is parked; or of the bytes the test asks for."""
    made = Executor(audit=0, memory_budget=getattr(request, "param", 1), memory_patience=20)
    yield made
    made.close()


def until(what: Callable[[], object]) -> None:
    """Wait for it, not for ever."""
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


def held(rollout: Rollout) -> Workspace:
    assert rollout.workspace is not None
    return rollout.workspace


# -- parking a workspace


def test_a_parked_workspace_is_woken_by_whatever_is_asked_of_it(workspace: Workspace) -> None:
    workspace.run("cd /tmp; x=5; echo hi > f; sleep 60 &")
    workspace.call(ToolCall("python", {"code": "y = 7"}))
    digest = workspace.digest(b"")
    asks: list[Callable[[], object]] = [
        lambda: workspace.run("echo $x $PWD").output == "5 /tmp\n",
        lambda: workspace.call(ToolCall("python", {"code": "y"})).output == "7\n",
        lambda: workspace.read_file("/tmp/f") == b"hi\n",
        lambda: [p.comm for p in workspace.processes()] == ["bunshin-init", "bash", "python", "sleep"],
        lambda: workspace.digest(b"").loose == digest.loose,
        lambda: workspace.snapshot().close() is None,
    ]
    for ask in asks:
        workspace.park()
        workspace.park()  # it is
        assert workspace.parked and workspace.alive and "parked" in repr(workspace)
        assert workspace.memory().rss == 0
        workspace.interrupt()  # nothing runs, and nothing is woken for it
        assert workspace.parked
        assert ask()
        assert not workspace.parked
    workspace.wake()


def test_a_workspace_in_use_is_not_parked(workspace: Workspace) -> None:
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(workspace.run, "sleep 30")
        until(lambda: workspace._running is not None)
        with pytest.raises(WorkspaceBusy, match="cannot park: the workspace is in use"):
            workspace.park()
        workspace.interrupt()
        call.result()
    workspace.park()


@pytest.fixture
def slow_seal(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Parking takes from the first event, which it sets, to the second."""
    begun, go_on = threading.Event(), threading.Event()
    real = DummyWorkspace.park

    def park(self: DummyWorkspace) -> DummySnapshot:
        begun.set()
        assert go_on.wait(20)
        return real(self)

    monkeypatch.setattr(DummyWorkspace, "park", park)
    return begun, go_on


def test_who_comes_while_it_is_being_parked_waits(
    workspace: Workspace, slow_seal: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow_seal
    workspace.run("x=5")
    with ThreadPoolExecutor(3) as pool:
        parking = pool.submit(workspace.park)
        assert begun.wait(20)
        call, look = pool.submit(workspace.run, "echo $x"), pool.submit(workspace.processes)
        assert workspace.alive
        go_on.set()
        parking.result(20)
        assert len(look.result(20)) == 2
        assert call.result(20).output == "5\n"


def test_closed_while_it_is_being_parked(
    workspace: Workspace, slow_seal: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow_seal
    with ThreadPoolExecutor(1) as pool:
        parking = pool.submit(workspace.park)
        assert begun.wait(20)
        workspace.close()
        go_on.set()
        with pytest.raises(WorkspaceLost):
            parking.result(20)
    assert not workspace.alive
    with pytest.raises(WorkspaceError, match="the workspace is closed"):
        workspace.run("ls")


def test_what_fails_changes_nothing(workspace: Workspace, faults: Faults) -> None:
    workspace.run("x=5")
    faults.fail_snapshots = 1
    with pytest.raises(WorkspaceError, match="cannot seal"):
        workspace.park()
    assert not workspace.parked and workspace.run("echo $x").output == "5\n"
    workspace.park()
    faults.fail_forks = 1
    with pytest.raises(WorkspaceError, match="cannot rebuild"):
        workspace.run("echo $x")
    assert workspace.parked and workspace.run("echo $x").output == "5\n"


def test_closed_while_parked(workspace: Workspace) -> None:
    workspace.park()
    workspace.close()
    workspace.close()
    assert not workspace.alive and not workspace.parked
    with pytest.raises(WorkspaceError, match="the workspace is closed"):
        workspace.wake()


# -- the law


COMMANDS = st.sampled_from(
    [
        "ls",
        "cat f g",
        "echo a > f",
        "echo b >> f",
        "echo c > g",
        "rm -f f",
        "x=1",
        "x=2",
        "echo $x",
        "cd /tmp",
        "pwd",
        "cd -",
        "sleep 60 &",
        "jobs",
        "false",
        "echo $?",
        "nonsense",
    ]
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), COMMANDS), max_size=25), st.integers(1, 12 * MB), st.booleans(), st.booleans()
)
def test_a_budget_changes_nothing_that_is_seen(
    moves: list[tuple[int, str]], budget: int, cache: bool, speculate: bool
) -> None:
    seen = []
    for memory_budget in (None, budget):
        drafts = 2 if speculate and memory_budget else 0
        executor = Executor(
            audit=0, group=4, cache=cache, snapshot_seconds=0, memory_budget=memory_budget, speculate=drafts
        )
        rollouts = [executor.open("task", prepare) for _ in range(4)]
        results = [run(executor, rollouts[number], command) for number, command in moves]
        verdicts = [executor.verify(one, lambda w: float(w.run("test -e f").ok)) for one in rollouts]
        seen.append(([(r.output, r.exit_code, r.exit_reason) for r in results], verdicts))
        for rollout in rollouts:
            rollout.close()
        executor.close()
    assert seen[0] == seen[1]


def test_many_threads_on_a_small_budget(executor: Executor, begin: Begin) -> None:
    rollouts = [begin() for _ in range(8)]
    together = threading.Barrier(8)

    def play(number: int) -> list[str]:
        said = [run(executor, rollouts[number], f"n={number}").output]
        for i in range(6):
            together.wait(20)
            said.append(run(executor, rollouts[number], f"echo $n {i}").output)
        return said

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(play, range(8)))
    assert told == [["", *(f"{number} {i}\n" for i in range(6))] for number in range(8)]
    assert executor.stats.parked > 0 and executor.stats.woken > 0
    assert sum(not held(rollout).parked for rollout in rollouts) <= 2


def test_a_kept_state_of_a_parked_rollout(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    run(executor, first, "echo $RANDOM > f; x=5")
    run(executor, second, "y=6")
    held(first).park()
    place = executor.keep(first)
    resumed = executor.resume(place)
    assert run(executor, resumed, "cat f; echo $x").output == run(executor, first, "cat f; echo $x").output
    resumed.close()
    place.release()


def test_environments_take_a_budget() -> None:
    with pytest.raises(ValueError, match="cannot read 'lots' as a size"):
        gym.make("bunshin/Shell-v0", engine="dummy", memory_budget="lots")
    with pytest.raises(ValueError, match="memory_patience"):
        Executor(memory_patience=0)
    with pytest.raises(ValueError, match="cannot read 0 as a size"):
        RolloutPool(engine="dummy", memory_budget=0)
    envs = gym.make_vec("bunshin/Shell-v0", num_envs=3, engine="dummy", memory_budget="1M")
    assert isinstance(envs, BunshinVectorEnv)
    envs.reset(seed=1)
    envs.step(["x=1", "x=2", "x=3"])
    observations = envs.step(["echo $x"] * 3)[0]
    assert observations == ("1\n", "2\n", "3\n")
    assert envs.stats.parked > 0 and envs.stats.memory_peak > 1 * MB and "workspaces" in envs.stats.as_dict()["memory"]
    envs.close()


# -- who goes first, and who waits


class Drafts:
    kind = "drafts"
    rank = 0

    def __init__(self) -> None:
        self.bytes = 5 * MB

    def holdings(self) -> Iterable[Holding]:
        return [Holding(self.bytes)]

    def shed(self, wanted: int) -> int:
        gone, self.bytes = self.bytes, 0
        return gone


def write(executor: Executor, rollout: Rollout, size: int) -> None:
    """A file of that many bytes."""
    executor.run(rollout, ToolCall("write_file", {"path": "large", "content": "x" * size}), 20)


@pytest.mark.parametrize("executor", [24 * MB], indirect=True)
def test_what_is_worth_least_goes_first(executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "_MEASURING", 0)  # every time
    executor.keeper.group, executor.keeper.policy = 4, Everywhere()
    drafts = Drafts()
    executor.ledger.register(drafts)
    first, second, third = begin(), begin(), begin()
    write(executor, first, 4 * MB)  # 6 MB, and 4 MB of a snapshot
    node = first.node
    run(executor, second, "echo $RANDOM > mine")
    assert drafts.bytes and node.snapshot is not None and not executor.stats.parked
    write(executor, second, 3 * MB)
    run(executor, third, "echo $RANDOM > mine")
    assert not drafts.bytes and node.snapshot is not None and not executor.stats.parked
    write(executor, third, 4 * MB)
    fourth = begin()
    run(executor, fourth, "echo $RANDOM > mine")
    assert node.snapshot is None and not executor.stats.parked
    write(executor, fourth, 5 * MB)
    run(executor, begin(), "echo $RANDOM > mine")
    assert executor.stats.parked and held(first).parked  # used longest ago
    assert run(executor, first, "wc -c < large").output.strip() == str(4 * MB)


@pytest.mark.parametrize("executor", [8 * MB], indirect=True)
def test_a_state_that_is_kept_stays(executor: Executor, begin: Begin) -> None:
    executor.keeper.group, executor.keeper.policy = 4, Everywhere()
    first = begin()
    run(executor, first, "echo $RANDOM > mine")
    place = executor.keep(first)
    node = first.node
    for _ in range(4):
        run(executor, begin(), "echo $RANDOM > mine")
    assert executor.stats.parked and node.snapshot is not None
    place.release()
    assert node.snapshot is None


def test_one_that_is_larger_than_the_budget_runs_and_is_told_of_once(
    executor: Executor, begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "bunshin_gym"):
        first, second = begin(), begin()
        for rollout in (first, second, first):
            assert run(executor, rollout, "echo hi").output == "hi\n"
            run(executor, rollout, "x=$RANDOM")
    told = [record.message for record in caplog.records if "too small for a single workspace" in record.message]
    assert len(told) == 1 and "held:" in told[0]


def test_who_finds_no_room_waits_for_those_who_work(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    run(executor, first, "x=1")
    with ThreadPoolExecutor(2) as pool:
        busy = pool.submit(run, executor, first, "sleep 30; echo done")
        until(lambda: held(first)._running is not None)
        waiting = pool.submit(run, executor, second, "y=$RANDOM; echo there")
        until(lambda: executor.ledger._queue)
        assert second.workspace is None and not held(first).parked  # it is at work
        held(first).interrupt()
        assert waiting.result(20).output == "there\n"
        busy.result(20)
    assert held(first).parked
    assert executor.stats.seconds["budget"] > 0
    assert run(executor, first, "echo $x").output == "1\n"


def test_who_waits_in_vain_is_told_why(begin: Begin, executor: Executor) -> None:
    executor.ledger.patience = 0.1
    first, second = begin(), begin()
    run(executor, first, "x=1")
    executor.run(first, ToolCall("python", {"code": "g = (i for i in [1])"}), 20)  # this cannot be forked
    with pytest.raises(MemoryBudgetExceeded, match=r"has had no room for .*; held: .*workspaces"):
        run(executor, second, "y=$RANDOM")
    assert run(executor, first, "echo $x").output == "1\n"
    first.close()
    run(executor, second, "y=$RANDOM")


@pytest.mark.parametrize("end", ["rollout", "executor"])
def test_who_waits_is_let_go_at_the_end(executor: Executor, begin: Begin, end: str) -> None:
    first, second = begin(), begin()
    run(executor, first, "x=1")
    with ThreadPoolExecutor(2) as pool:
        busy = pool.submit(run, executor, first, "sleep 30")
        until(lambda: held(first)._running is not None)
        waiting = pool.submit(run, executor, second, "y=$RANDOM")
        until(lambda: executor.ledger._queue)
        if end == "rollout":
            second.close()
        else:
            executor.close()
        with pytest.raises(WorkspaceError, match="closed"):
            waiting.result(20)
        held(first).interrupt()
        busy.result(20)


def test_what_is_prepared_ahead_never_waits() -> None:
    envs = BunshinVectorEnv(1, engine="dummy", task="log_hunt", memory_budget=1)
    env = envs.env_class(task="log_hunt", engine="dummy", _executor=envs._executor)
    envs._executor.ledger.parking._usual = MB
    with pytest.raises(MemoryBudgetExceeded, match="has no room for what is made ahead"):
        env.prepare("log_hunt")
    env.close()
    envs.close()


def test_closing_parked_rollouts_leaves_nothing() -> None:
    executor = Executor(audit=0, memory_budget=1)
    rollouts = [executor.open("task", prepare) for _ in range(3)]
    for number, rollout in enumerate(rollouts):
        run(executor, rollout, f"n={number}")
    assert any(held(rollout).parked for rollout in rollouts)
    for rollout in rollouts:
        executor.close_rollout(rollout)
    executor.close()
    assert SPEC.engine == "dummy"  # that no workspace of it is left is looked at after every test
