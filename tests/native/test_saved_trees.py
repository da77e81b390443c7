"""A call tree that was saved, on the native engine: it answers, and what it cannot answer runs where it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from bunshin_gym import Task, ToolCall, WorkspaceSpec
from bunshin_gym.executor import Executor

pytestmark = pytest.mark.engine("native")

TASK = Task("saved", "", setup=("mkdir d; echo 1 > d/a",), verifier=lambda ws: float(ws.run("cat d/b").output == "2\n"))
SPEC = WorkspaceSpec(separate_stderr=False)
SCRIPT = ("cat d/a", "x=2; echo $x > d/b", "cd d; ls", "printf '\\377\\0' | cat", "ls -l; pwd")


def played(executor: Executor, *more: str) -> list[str]:
    rollout = executor.open(TASK.name, lambda: TASK.prepare(SPEC), TASK.stamp)
    try:
        seen = [executor.run(rollout, ToolCall("shell", {"command": c}), 20.0).output for c in (*SCRIPT, *more)]
        return [*seen, str(executor.verify(rollout, TASK.verifier))] if TASK.verifier else seen
    finally:
        rollout.close()


def test_the_next_executor_goes_on_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tree"
    first = Executor(audit=0)
    told = played(first)
    first.save(path)
    first.close()
    second = Executor(audit=1.0, saved=path)
    assert played(second)[:4] == told[:4]
    assert (second.stats.recalled, second.stats.stale, second.stats.hits) == (5, 0, 4)
    assert second.stats.misses == 1  # ls -l: the files are new
    assert played(second, "echo $x; rm b; ls")[-2] == "2\na\n"
    assert second.auditor.drain(60)
    assert (second.stats.replay_mismatches, second.stats.false_hits) == (0, 0)
    assert second.stats.audits > 0
    second.close()
