"""A call that is cut short by its time limit, on the native engine: who waits for it goes on in a fork."""

from __future__ import annotations

import pytest
from unit.rollouts import run, waiting_for_the_first

from bunshin_gym import ExitReason, ToolResult, Workspace, WorkspaceSpec
from bunshin_gym.executor import Executor


def test_siblings_go_on_from_what_a_call_left_that_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor(group=3, audit=0)
    rollouts = [executor.open("task", lambda: Workspace(WorkspaceSpec(engine="native"))) for _ in range(3)]
    try:
        command = "X=1; echo part > f; cat /proc/sys/kernel/random/uuid > /dev/shm/mark; sleep 1000"
        # Of this nobody knows by its text that it looks outside the state: what each sees is what the one call left.
        monkeypatch.setattr("bunshin_gym.executor.cacheable", lambda *_: True)
        results = waiting_for_the_first(monkeypatch, timeout=0.5)(executor, rollouts, command)
        assert [isinstance(r, ToolResult) and r.exit_reason for r in results] == [ExitReason.TIMEOUT] * 3
        assert (executor.stats.misses, executor.stats.handed) == (1, 2)
        marks = [run(executor, rollout, "cat f /dev/shm/mark; echo $X; pgrep -c sleep") for rollout in rollouts]
        assert marks[0].output.startswith("part\n") and marks[0].output.endswith("\n1\n0\n")
        assert {mark.output for mark in marks} == {marks[0].output}
        for number, rollout in enumerate(rollouts):
            assert run(executor, rollout, f"echo {number} >> f; cat f").output == f"part\n{number}\n"
        assert executor.stats.timeouts == 1 and executor.stats.replay_mismatches == 0
    finally:
        for rollout in rollouts:
            rollout.close()
        executor.close()
