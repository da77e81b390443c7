from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.rollouts import Begin, prepare, run

from bunshin_gym import (
    ExitReason,
    ForkError,
    TaskError,
    ToolResult,
    Workspace,
    WorkspaceError,
    WorkspaceLost,
)
from bunshin_gym.engines.dummy import DummyEngine, Faults
from bunshin_gym.executor import Executor
from bunshin_gym.rollout import Rollout


@pytest.fixture
def executor() -> Iterator[Executor]:
    made = Executor(group=4)
    yield made
    made.close()


def together(n: int, job: Callable[[int], object]) -> list[object]:
    """Run job(0) … job(n - 1) at the same time; an exception is a result."""
    results: list[object] = [None] * n
    barrier = threading.Barrier(n)

    def work(i: int) -> None:
        barrier.wait(30)
        try:
            results[i] = job(i)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results


def test_a_prefix_that_was_run_before_is_a_hit_and_touches_no_workspace(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    outputs = [run(executor, first, command).output for command in ("pwd", "echo a > f", "cat f ready")]
    assert [run(executor, second, command).output for command in ("pwd", "echo a > f", "cat f ready")] == outputs
    assert second.workspace is None
    assert second.node is first.node
    assert (executor.stats.calls, executor.stats.hits, executor.stats.misses) == (6, 3, 3)


def test_a_hit_parses_nothing(executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = begin(), begin(), begin()
    for command in ("echo a > f", "cat f", "ls"):
        run(executor, first, command)
    run(executor, third, "echo b > f")
    run(executor, third, "echo a > f")  # another history of the first one's state
    monkeypatch.setattr("bunshin_gym.looks._of", lambda call: pytest.fail(f"{call} was parsed"))
    for command in ("echo a > f", "cat f", "ls"):
        run(executor, second, command)
    assert run(executor, third, "cat f").output == "a\n"
    assert (executor.stats.hits, executor.stats.hits_by_state) == (4, 1)


def test_what_hits_left_behind_is_replayed_when_a_miss_needs_it(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    for rollout in (first, second):
        run(executor, rollout, "X=1")
        run(executor, rollout, "echo a > f")
    assert run(executor, second, "echo $X; cat f").output == "1\na\n"
    assert executor.stats.replays == 2
    assert executor.stats.forks == 1


def test_a_hit_also_puts_a_workspace_that_was_there_into_the_state(executor: Executor, begin: Begin) -> None:
    """A second identical *mutating* call must not be dropped."""
    first, second = begin(), begin()
    run(executor, second, "echo own")
    second_workspace = second.workspace
    for rollout in (first, second):
        if rollout is first:
            run(executor, rollout, "echo own")
        for _ in range(2):
            run(executor, rollout, "echo x >> f")
    assert run(executor, second, "wc -l f").output == "2 f\n"
    assert second.workspace is second_workspace


def test_another_call_in_between_is_another_state(executor: Executor, begin: Begin) -> None:
    rollout = begin()
    assert run(executor, rollout, "cat f").exit_code == 1
    run(executor, rollout, "echo now > f")
    assert run(executor, rollout, "cat f").output == "now\n"


def test_another_time_limit_is_another_call(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    assert run(executor, first, "sleep 0.3; echo done").output == "done\n"
    assert run(executor, second, "sleep 0.3; echo done", timeout=0.1).exit_reason is ExitReason.TIMEOUT


def test_of_siblings_asking_the_same_at_once_one_runs(executor: Executor, begin: Begin) -> None:
    rollouts = [begin() for _ in range(6)]
    results = together(6, lambda i: run(executor, rollouts[i], "sleep 0.2; echo once >> f; cat f"))
    assert {result.output for result in results} == {"once\n"}  # type: ignore[attr-defined]
    stats = executor.stats
    assert (stats.misses, stats.hits + stats.waits) == (1, 5)


def test_siblings_take_over_from_one_that_lost_its_workspace(executor: Executor, begin: Begin, faults: Faults) -> None:
    rollouts = [begin() for _ in range(4)]
    faults.lose_at_call = 1
    results = together(4, lambda i: run(executor, rollouts[i], "sleep 0.1; echo on"))
    reasons = sorted(result.exit_reason.value for result in results)  # type: ignore[attr-defined]
    assert reasons == ["exited", "exited", "exited", "workspace_lost"]
    assert executor.stats.misses == 2
    assert executor.stats.lost == 1


def test_siblings_take_over_from_one_whose_fork_failed(executor: Executor, begin: Begin, faults: Faults) -> None:
    begin()  # has the prepared workspace; those below have to fork
    rollouts = [begin() for _ in range(4)]
    faults.fail_forks = 1
    results = together(4, lambda i: run(executor, rollouts[i], "echo on"))
    assert sum(isinstance(result, ForkError) for result in results) == 1
    assert sum(isinstance(result, ToolResult) and result.output == "on\n" for result in results) == 3


def test_what_goes_on_by_itself_is_shared_with_nobody(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    for rollout in (first, second):
        run(executor, rollout, "sleep 30 &")
        run(executor, rollout, "echo below")
    assert executor.stats.hits == 0
    assert first.node.private
    assert first.node is not second.node


@pytest.mark.parametrize("command", ["echo $$", "date", "sleep 60"])
def test_without_digests_nothing_is_shared_below_what_depends_on_more_than_the_state(command: str) -> None:
    executor = Executor(group=4, key="history")
    rollouts = [executor.open("task", prepare) for _ in range(2)]
    for rollout in rollouts:
        run(executor, rollout, command, timeout=0.05)
        run(executor, rollout, "echo below")
        assert rollout.node.precarious
    assert executor.stats.hits == 0 and rollouts[0].node is not rollouts[1].node
    for rollout in rollouts:
        rollout.close()
    executor.close()


def test_results_that_are_not_cached_are_not_replayed_either(executor: Executor, begin: Begin) -> None:
    rollout = begin()
    run(executor, rollout, "sleep 30 &")
    assert rollout.workspace is not None
    rollout.workspace.close()
    with pytest.raises(WorkspaceLost):
        run(executor, rollout, "echo on")
    with pytest.raises(WorkspaceLost, match="something else each time"):
        run(executor, rollout, "echo on")


def test_a_replay_that_disagrees_drops_the_branch_and_what_is_true_now_rules(
    executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = begin(), begin(), begin()
    counter = itertools.count()
    from bunshin_gym.engines import dummy_commands

    def changing(session: object, argv: list[str], io: object) -> int:
        io.out(b"%d\n" % next(counter))  # type: ignore[attr-defined]
        return 0

    monkeypatch.setitem(dummy_commands.COMMANDS, "changing", changing)  # type: ignore[arg-type]
    assert run(executor, first, "echo x > f; changing").output == "0\n"
    assert run(executor, first, "echo below").output == "below\n"
    assert run(executor, second, "echo x > f; changing").output == "0\n"  # believed, so far
    assert run(executor, second, "pwd").output == "/work\n"
    assert executor.stats.replay_mismatches == 1
    assert second.node.private
    assert run(executor, third, "echo x > f; changing").output == "2\n"  # not believed any more
    assert run(executor, first, "echo still here").output == "still here\n"


def test_a_rollout_of_the_dropped_branch_itself_goes_on(
    executor: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bunshin_gym.engines import dummy_commands

    counter = itertools.count()

    def changing(session: object, argv: list[str], io: object) -> int:
        io.out(b"%d\n" % next(counter))  # type: ignore[attr-defined]
        return 0

    monkeypatch.setitem(dummy_commands.COMMANDS, "changing", changing)  # type: ignore[arg-type]
    rollouts = [begin() for _ in range(3)]
    for rollout in rollouts:
        run(executor, rollout, "changing")
        run(executor, rollout, "X=1")
    for rollout in rollouts:
        assert run(executor, rollout, "echo $X").output == "1\n"


def test_without_cache_every_call_is_run_and_workspaces_are_still_forks(faults: Faults) -> None:
    executor = Executor(cache=False)
    rollouts = [executor.open("task", prepare) for _ in range(3)]
    for rollout in rollouts:
        assert run(executor, rollout, "cat ready").output == "prepared\n"
        rollout.close()
    assert (executor.stats.misses, executor.stats.hits) == (3, 0)
    assert (executor.stats.prepared, executor.stats.forks) == (1, 2)
    executor.close()


def test_without_sharing_every_rollout_prepares_its_own() -> None:
    executor = Executor(cache=False, share=False)
    rollouts = [executor.open("task", prepare) for _ in range(3)]
    for rollout in rollouts:
        assert run(executor, rollout, "cat ready").output == "prepared\n"
        rollout.close()
    assert (executor.stats.prepared, executor.stats.forks, executor.stats.snapshots) == (3, 0, 0)
    executor.close()


def test_a_task_whose_workspace_cannot_be_forked_is_prepared_for_each(faults: Faults) -> None:
    executor = Executor()
    faults.fail_snapshots = 1
    rollouts = [executor.open("task", prepare) for _ in range(2)]
    for rollout in rollouts:
        assert run(executor, rollout, f"cat ready; echo {id(rollout)}").ok
        rollout.close()
    assert executor.stats.prepared == 2
    executor.close()


def test_a_preparation_that_fails_is_tried_again(executor: Executor, faults: Faults, dummy: DummyEngine) -> None:
    faults.fail_creates = 1
    with pytest.raises(WorkspaceError):
        executor.open("task", prepare)
    rollout = executor.open("task", prepare)
    assert run(executor, rollout, "cat ready").output == "prepared\n"
    rollout.close()


def test_siblings_that_start_at_once_prepare_once(executor: Executor) -> None:
    rollouts = together(8, lambda i: executor.open("task", prepare))
    assert executor.stats.prepared == 1
    for rollout in rollouts:
        assert isinstance(rollout, Rollout)
        rollout.close()


def test_states_that_are_dear_to_replay_get_a_snapshot_where_siblings_are_expected(begin: Begin) -> None:
    executor = Executor(group=2, snapshot_seconds=0.05)
    first, second = executor.open("task", prepare), executor.open("task", prepare)
    for rollout in (first, second):
        run(executor, rollout, "sleep 0.1; X=1")
    assert executor.stats.snapshots == 2  # the root's, and this one
    assert run(executor, second, "echo $X").output == "1\n"
    assert executor.stats.replays == 0
    for rollout in (first, second):
        rollout.close()
    executor.close()


def test_the_cheaper_way_is_taken(executor: Executor, begin: Begin) -> None:
    first, second = begin(), begin()
    run(executor, first, "sleep 0.3")
    run(executor, first, "X=1")
    run(executor, second, "sleep 0.3")
    own = second.workspace
    run(executor, second, "X=1")
    # Its own workspace never made the long call, but there is a snapshot behind it.
    assert run(executor, second, "echo $X").output == "1\n"
    assert own is None
    assert executor.stats.seconds["replay"] < 0.2


class TestVerify:
    def test_siblings_that_end_in_one_state_share_the_verdict(self, executor: Executor, begin: Begin) -> None:
        first, second, third = begin(), begin(), begin()
        seen = []

        def verifier(workspace: Workspace) -> float:
            seen.append(workspace.run("cat f").output)
            return 1.0 if seen[-1] == "right\n" else 0.0

        for rollout, word in ((first, "right"), (second, "right"), (third, "wrong")):
            run(executor, rollout, f"echo {word} > f")
        verdicts = [executor.verify(rollout, verifier) for rollout in (first, second, third)]
        assert verdicts == [1.0, 1.0, 0.0]
        assert seen == ["right\n", "wrong\n"]
        assert first.workspace is None

    def test_frozen_and_live_verdicts_are_told_apart(self, executor: Executor, begin: Begin) -> None:
        seen = []

        def verifier(workspace: Workspace) -> float:
            seen.append(workspace.run("jobs").output)
            return len(seen) / 10

        asked = [False, True, False, True]
        rollouts = [begin() for _ in asked]
        for rollout in rollouts:
            run(executor, rollout, "echo right > f")
        verdicts = [executor.verify(r, verifier, freeze=f) for r, f in zip(rollouts, asked, strict=True)]
        assert verdicts == [0.1, 0.2, 0.1, 0.2]

    def test_a_frozen_job_does_not_end(self, workspace: Workspace) -> None:
        workspace.run("sleep 60 &")
        workspace.freeze()
        (child,) = workspace.fork(1)
        assert isinstance(child, Workspace)
        with child:
            assert [job.ends for job in child._inner.session.live_jobs()] == [float("inf")]  # type: ignore[attr-defined]

    def test_what_the_verifier_does_is_seen_by_nobody(self, executor: Executor, begin: Begin) -> None:
        first, second = begin(), begin()
        run(executor, first, "echo a > f")
        executor.verify(first, lambda workspace: workspace.run("rm f").duration * 0)
        run(executor, second, "echo a > f")
        assert run(executor, second, "cat f").output == "a\n"
        assert run(executor, first, "cat f").output == "a\n"

    @pytest.mark.parametrize("verdict", [2.0, -0.1, float("nan"), None, "x"])
    def test_a_verdict_that_is_none(self, executor: Executor, begin: Begin, verdict: object) -> None:
        rollout = begin()
        with pytest.raises(TaskError, match="verifier"):
            executor.verify(rollout, lambda workspace: verdict)  # type: ignore[arg-type, return-value]
        assert rollout.workspace is None


class TestPlaces:
    def test_a_place_is_resumed_any_number_of_times(self, executor: Executor, begin: Begin) -> None:
        rollout = begin()
        run(executor, rollout, "X=1; date")  # there is no way back but the snapshot
        place = executor.keep(rollout)
        run(executor, rollout, "X=2")
        for _ in range(2):
            again = executor.resume(place)
            assert run(executor, again, "echo $X").output == "1\n"
            again.close()
        assert run(executor, rollout, "echo $X").output == "2\n"
        place.release()
        place.release()
        with pytest.raises(ValueError):
            executor.resume(place)

    def test_a_place_with_debts_costs_no_workspace(self, executor: Executor, begin: Begin) -> None:
        first, second = begin(), begin()
        run(executor, first, "X=1")
        run(executor, second, "X=1")
        place = executor.keep(second)
        assert second.workspace is None
        again = executor.resume(place)
        assert run(executor, again, "echo $X").output == "1\n"
        again.close()
        place.release()

    def test_what_is_thrown_away_is_let_go_of(self, executor: Executor, begin: Begin) -> None:
        rollout = begin()
        run(executor, rollout, "date > f")
        place = executor.keep(rollout)
        node = place.node
        assert node.snapshot is not None
        del place
        gc.collect()
        run(executor, rollout, "pwd")
        assert node.snapshot is None

    def test_a_rollout_holds_on_to_its_place(self, executor: Executor, begin: Begin) -> None:
        rollout = begin()
        run(executor, rollout, "X=1; date")
        place = executor.keep(rollout)
        again = executor.resume(place)
        place.release()
        rollout.close()
        assert run(executor, again, "echo $X").output == "1\n"
        again.close()
        run(executor, begin(), "pwd")
        assert executor.tree.size[2] == 1  # the root's

    def test_a_state_that_cannot_be_sealed_is_replayed_or_refused(
        self, executor: Executor, begin: Begin, faults: Faults
    ) -> None:
        rollout = begin()
        run(executor, rollout, "X=1")
        faults.fail_snapshots = 1
        place = executor.keep(rollout)
        again = executor.resume(place)
        assert run(executor, again, "echo $X").output == "1\n"
        again.close()
        place.release()
        run(executor, rollout, "date > f")
        faults.fail_snapshots = 1
        with pytest.raises(ForkError):
            executor.keep(rollout)


def test_a_rollout_closed_in_the_middle_of_a_call_gets_no_workspace_any_more(executor: Executor, begin: Begin) -> None:
    rollout = begin()
    results: list[ToolResult] = []
    caller = threading.Thread(target=lambda: results.append(run(executor, rollout, "sleep 60")))
    caller.start()
    while rollout.workspace is None or rollout.workspace._running is None:
        pass
    rollout.close()
    caller.join(30)
    assert results[0].exit_reason is ExitReason.WORKSPACE_LOST
    with pytest.raises(WorkspaceLost):
        run(executor, rollout, "pwd")


def test_after_close_nothing_is_started(begin: Begin) -> None:
    executor = Executor()
    rollout = executor.open("task", prepare)
    place = executor.keep(rollout)
    rollout.close()
    executor.close()
    executor.close()
    with pytest.raises(WorkspaceError):
        executor.open("task", prepare)
    with pytest.raises(WorkspaceError):
        run(executor, executor.resume(place), "pwd")


COMMANDS = st.lists(
    st.sampled_from(
        [
            "pwd",
            "cd /tmp",
            "cd /work",
            "X=$((X+1))",
            "echo $X",
            "echo $X >> log",
            "cat log",
            "rm -f log",
            "exit 3",
            "date",
            "sleep 30 &",
            "ls",
            "export X",
            "false",
            "echo $?",
        ]
    ),
    max_size=7,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, min_size=2, max_size=4))
def test_cache_transparency(sequences: list[list[str]]) -> None:
    """Law 3: the same calls give the same with the cache on and off."""
    outputs = []
    for cache, share in ((True, True), (False, True), (False, False)):
        executor = Executor(cache=cache, share=share, group=3, snapshot_seconds=0.0)
        seen = []
        rollouts = [executor.open("task", prepare) for _ in sequences]
        for step in itertools.zip_longest(*sequences):
            for rollout, command in zip(rollouts, step, strict=True):
                if command is not None:
                    result = run(executor, rollout, command)
                    seen.append((result.output, result.exit_code, result.exit_reason))
        outputs.append(seen)
        for rollout in rollouts:
            rollout.close()
        executor.close()
        assert executor.stats.replay_mismatches == 0
    assert outputs[0] == outputs[1] == outputs[2]
