"""Calls whose results are nobody else's: cut short by their limits, or of the clock. What becomes of those who wait,
and that what follows is shared all the same where the state says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from unit.rollouts import Begin, Together, prepare, run, waiting_for_the_first

from bunshin_gym import ExitReason, ToolResult, WorkspaceError, WorkspaceLost
from bunshin_gym.engines import dummy_commands
from bunshin_gym.engines.dummy import Faults
from bunshin_gym.executor import Executor
from bunshin_gym.rollout import Rollout

SLOW = "echo part > f; sleep 60"


@pytest.fixture(params=["state", "history"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made = Executor(group=4, audit=0, key=request.param)
    yield made
    made.close()


@pytest.fixture
def by_state() -> Iterator[Executor]:
    made = Executor(group=4, audit=0)
    yield made
    made.close()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Together:
    return waiting_for_the_first(monkeypatch)


def reasons(results: list[ToolResult | WorkspaceError]) -> list[ExitReason]:
    return [result.exit_reason for result in results if isinstance(result, ToolResult)]


def test_who_waits_for_a_call_that_is_cut_short_gets_it_and_a_fork(
    executor: Executor, begin: Begin, waiting: Together
) -> None:
    rollouts = [begin() for _ in range(4)]
    assert reasons(waiting(executor, rollouts, SLOW)) == [ExitReason.TIMEOUT] * 4
    assert (executor.stats.misses, executor.stats.waits, executor.stats.handed) == (1, 3, 3)
    assert {rollout.node for rollout in rollouts} == {rollouts[0].node}
    assert [run(executor, rollout, "cat f").output for rollout in rollouts] == ["part\n"] * 4
    assert (executor.stats.misses, executor.stats.hits) == (2, 3)  # what follows is shared
    for number, rollout in enumerate(rollouts):
        run(executor, rollout, f"echo {number} >> f")
        assert run(executor, rollout, "cat f").output == f"part\n{number}\n"
    assert executor.stats.timeouts == 1
    assert executor.stats.replay_mismatches == 0
    assert executor.tree.size[2] == 1  # the root's: all have workspaces of their own by now


def test_a_call_that_was_cut_short_is_answered_to_nobody_later(
    executor: Executor, begin: Begin, waiting: Together
) -> None:
    rollouts = [begin() for _ in range(2)]
    waiting(executor, rollouts, SLOW)
    late = begin()
    assert not executor.knows(late, rollouts[0].trail[0].edge.call, 0.1)
    assert run(executor, late, SLOW, timeout=0.1).exit_reason is ExitReason.TIMEOUT
    assert executor.stats.timeouts == executor.stats.misses == 2
    assert run(executor, late, "cat f").output == "part\n"


def test_states_meet_after_calls_that_were_cut_short(by_state: Executor, begin: Callable[[], Rollout]) -> None:
    rollouts = [by_state.open("task", prepare) for _ in range(2)]
    for rollout in rollouts:
        run(by_state, rollout, SLOW, timeout=0.05)
    assert rollouts[0].node is not rollouts[1].node and rollouts[0].node.state is rollouts[1].node.state
    assert [run(by_state, rollout, "cat f").output for rollout in rollouts] == ["part\n"] * 2
    assert by_state.stats.hits_by_state == 1
    for rollout in rollouts:
        rollout.close()


def test_one_who_waits_and_is_closed_leaves_nothing(executor: Executor, begin: Begin, waiting: Together) -> None:
    rollouts = [begin() for _ in range(3)]
    rollouts[2].close()
    results = waiting(executor, rollouts, SLOW)
    late = results[2]  # it may have come to wait when the call was over already
    assert isinstance(late, WorkspaceLost) or (
        isinstance(late, ToolResult) and late.exit_reason is ExitReason.TIMEOUT and rollouts[2].anchor is None
    )
    for rollout in rollouts:
        rollout.close()
    run(executor, begin(), "pwd")
    assert executor.tree.size[2] == 1  # the root's


def test_where_no_fork_can_be_had_each_makes_the_call_and_nobody_waits_again(
    executor: Executor, begin: Begin, waiting: Together, faults: Faults
) -> None:
    rollouts = [begin() for _ in range(3)]
    faults.fail_snapshots = 1
    assert reasons(waiting(executor, rollouts, SLOW)) == [ExitReason.TIMEOUT] * 3
    assert (executor.stats.misses, executor.stats.handed) == (3, 0)
    assert [run(executor, rollout, "cat f").output for rollout in rollouts] == ["part\n"] * 3
    assert rollouts[0].trail[0].edge in executor._unshared


def test_who_came_another_way_to_the_state_makes_the_call_too(by_state: Executor, waiting: Together) -> None:
    """Its times are not those of the one who ran it, and a later call may notice them."""
    rollouts = [by_state.open("task", prepare) for _ in range(2)]
    for rollout, order in zip(rollouts, ("gh", "hg"), strict=True):
        for name in order:
            run(by_state, rollout, f"echo x > {name}")
    assert rollouts[0].node.state is rollouts[1].node.state
    assert reasons(waiting(by_state, rollouts, SLOW)) == [ExitReason.TIMEOUT] * 2
    assert (by_state.stats.timeouts, by_state.stats.handed) == (2, 0)
    assert rollouts[0].trail[-1].edge in by_state._cut_short
    for rollout in rollouts:
        rollout.close()


def test_a_call_that_loses_every_workspace_is_not_made_one_after_the_other(
    executor: Executor, begin: Begin, faults: Faults
) -> None:
    rollouts = [begin() for _ in range(5)]
    flight, leading = executor._flights.join("x", 1)
    assert leading and executor._flights.join("x", 1) == (flight, False)
    faults.lose_at_call = 1
    assert run(executor, rollouts[0], "echo on").exit_reason is ExitReason.WORKSPACE_LOST
    assert run(executor, rollouts[1], "echo on").output == "on\n"


def test_a_call_of_the_clock_that_changes_nothing_leads_back(
    by_state: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[int] = []

    def date(session: object, argv: list[str], io: object) -> int:
        said.append(len(said))
        io.out(b"%d\n" % said[-1])  # type: ignore[attr-defined]
        return 0

    monkeypatch.setitem(dummy_commands.COMMANDS, "date", date)  # type: ignore[arg-type]
    rollouts = [by_state.open("task", prepare) for _ in range(3)]
    for rollout in rollouts:
        root = rollout.node
        assert run(by_state, rollout, "echo $$ > /dev/null; date").output == f"{len(said) - 1}\n"
        assert rollout.node is root
        assert run(by_state, rollout, "cat ready").output == "prepared\n"
        run(by_state, rollout, "echo a > f")
        run(by_state, rollout, "date > /dev/null")
        assert run(by_state, rollout, "cat f").output == "a\n"
    assert (by_state.stats.misses, by_state.stats.hits) == (6 + 3, 6) and len(said) == 6
    assert by_state.stats.replay_mismatches == 0
    for rollout in rollouts:
        rollout.close()


def test_what_the_clock_has_changed_is_a_state_that_others_may_come_to(
    by_state: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(dummy_commands.COMMANDS, "curl", lambda session, argv, io: 0)  # type: ignore[arg-type]
    rollouts = [by_state.open("task", prepare) for _ in range(3)]
    for rollout, word in zip(rollouts, ("same", "same", "other"), strict=True):
        run(by_state, rollout, f"curl x; echo {word} > f")
        assert rollout.node.precarious and not rollout.node.private
        assert run(by_state, rollout, "cat f").output == f"{word}\n"
        run(by_state, rollout, f"echo {word} >> f")
        assert run(by_state, rollout, "cat f").output == f"{word}\n" * 2
    assert rollouts[0].node.state is rollouts[1].node.state is not rollouts[2].node.state
    assert by_state.stats.hits_by_state == 3
    # What is owed is paid in a rollout's own workspace; where that is gone there is no other way.
    place = by_state.keep(rollouts[1])
    again = by_state.resume(place)
    assert run(by_state, again, "pwd; cat f").output == "/work\nsame\nsame\n"
    again.close()
    place.release()
    rollouts[2].drop()
    with pytest.raises(WorkspaceLost):
        run(by_state, rollouts[2], "wc f")
    for rollout in rollouts:
        rollout.close()


def test_an_answer_never_leads_where_a_rollout_could_have_no_workspace(
    by_state: Executor, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(dummy_commands.COMMANDS, "curl", lambda session, argv, io: 0)  # type: ignore[arg-type]
    rollouts = [by_state.open("task", prepare) for _ in range(2)]
    for rollout in rollouts:
        run(by_state, rollout, "curl x; echo a > f")
        for command in ("X=1", "echo $X > /dev/null", "pwd > /dev/null", "unset X", "X=1", "unset X", "wc f"):
            run(by_state, rollout, command)
        assert run(by_state, rollout, "cat f; echo $X").output == "a\n\n"
    for rollout in rollouts:
        rollout.close()
