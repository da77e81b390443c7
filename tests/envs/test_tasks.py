"""Every shipped task rewards its right solution and none of the wrong ones, tricks included."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import needs
from bunshin_gym.task import Task, Taskset
from bunshin_gym.tools import ExitReason
from bunshin_gym.workspace import Snapshot, Workspace, WorkspaceSpec

TASKS = Taskset.load("basic")
PROGRAMS = {"broken_makefile": ("gcc", "make")}
WRONG = {task.name: importlib.import_module(f"bunshin_gym.envs.{task.name}.task").WRONG for task in TASKS}
ENVS = Path(__file__).parents[2] / "envs"


@pytest.fixture(scope="module", params=TASKS, ids=lambda task: task.name)
def task(request: pytest.FixtureRequest) -> Task:
    needs.require("engine native")
    for program in PROGRAMS.get(request.param.name, ()):
        needs.require(program)
    return request.param


def play(snapshot: Snapshot, task: Task, script: tuple[str, ...]) -> float:
    (workspace,) = snapshot.fork(1)
    assert isinstance(workspace, Workspace), workspace
    with workspace:
        for command in script:
            result = workspace.run(command)
            assert result.exit_reason is ExitReason.EXITED, (command, result)
        assert task.verifier is not None
        return task.verifier(workspace)


def test_nothing_done_earns_nothing(task: Task, prepared: Snapshot) -> None:
    assert play(prepared, task, ()) == 0.0


def test_the_solution_is_right(task: Task, prepared: Snapshot) -> None:
    assert play(prepared, task, task.solution) == 1.0


def test_no_wrong_solution_is_rewarded(task: Task, prepared: Snapshot, subtests: pytest.Subtests) -> None:
    for mistake, script in WRONG[task.name].items():
        with subtests.test(mistake):
            assert play(prepared, task, script) == 0.0


def test_scripts_end_as_their_kind_should(task: Task, prepared: Snapshot) -> None:
    """The variants for demonstrations are a mixture: some solve the task, some do not."""
    rewards = {name: play(prepared, task, script) for name, script in task.scripts.items()}
    assert set(rewards.values()) == {0.0, 1.0}, rewards


def test_a_verdict_is_the_same_the_second_time(task: Task, prepared: Snapshot) -> None:
    """A verifier may be asked again in the workspace it has been in: what it does there must not count."""
    (workspace,) = prepared.fork(1)
    assert isinstance(workspace, Workspace), workspace
    assert task.verifier is not None
    with workspace:
        for command in task.solution:
            workspace.run(command)
        assert [task.verifier(workspace) for _ in range(2)] == [1.0, 1.0]


def test_the_solution_is_right_in_a_fresh_workspace(task: Task) -> None:
    assert task.verifier is not None
    with task.prepare(WorkspaceSpec()) as workspace:
        for command in task.solution:
            workspace.run(command)
        assert task.verifier(workspace) == 1.0


# -- what needs no engine


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
class TestEachTask:
    def test_scripts_share_an_opening(self, task: Task) -> None:
        """Without one there is nothing that forks and the call tree could share."""
        scripts = list(task.scripts.values())
        assert len(scripts) >= 4
        assert len(set(scripts)) == len(scripts)
        assert len({script[:2] for script in scripts}) <= 2

    def test_scripts_fit_the_step_limit(self, task: Task) -> None:
        longest = max(map(len, (task.solution, task.wrong, *task.scripts.values())))
        assert longest < task.step_limit

    def test_wrong_ways_include_a_trick(self, task: Task) -> None:
        assert len(WRONG[task.name]) >= 2
        assert task.wrong in WRONG[task.name].values()

    def test_the_readme_says_what_it_is(self, task: Task) -> None:
        readme = (ENVS / task.name / "README.md").read_text()
        assert readme.startswith(f"# {task.name}\n")
        for part in ("**To do:**", "**Needs:**", "**Verifier:**"):
            assert part in readme

    def test_files_lie_below_the_working_directory(self, task: Task) -> None:
        assert all(path.startswith("/work/") for path in task.files)
