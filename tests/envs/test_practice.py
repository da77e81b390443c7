"""The practice tasks: solvable, not to be tricked, with habits that keep their word, in workspaces that are alive."""

from __future__ import annotations

import importlib
import random
from collections import Counter

import pytest

import needs
from bunshin_gym.envs.practice._live import roster
from bunshin_gym.habits import THINKING, Attempt, Habits, thought
from bunshin_gym.task import Task, Taskset
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Snapshot, Workspace

TASKS = Taskset.load("practice")
MODULES = {task.name: importlib.import_module(f"bunshin_gym.envs.practice.{task.name}.task") for task in TASKS}
PROGRAMS = {"build_c_project": ("gcc", "make")}


def cheap(task: Task, script: tuple[str, ...]) -> tuple[str, ...]:
    """The script without the calls that only look, and take long."""
    module = MODULES[task.name]
    looking = {*module.LOOK[1:], module.CHECK, getattr(module, "CLOSE", "")}
    return tuple(command for command in script if command not in looking)


@pytest.fixture(scope="module", params=TASKS, ids=lambda task: task.name)
def task(request: pytest.FixtureRequest) -> Task:
    needs.require("engine native")
    for package in ("pandas", "pytest", "numpy"):
        pytest.importorskip(package)
    for program in PROGRAMS.get(request.param.name, ()):
        needs.require(program)
    return request.param


def quick(command: str) -> str:
    """The job over a million rows, column by column: it gives the same, in a tenth of the time."""
    return command.replace(
        "trips.apply(metres, axis=1)", "trips.distance.where(trips.unit == 'm', trips.distance * 1609.344)"
    )


def play(snapshot: Snapshot, task: Task, script: tuple[str, ...]) -> float:
    (workspace,) = snapshot.fork(1)
    assert isinstance(workspace, Workspace), workspace
    assert task.verifier is not None
    with workspace:
        for command in script:
            workspace.run(quick(command), timeout=120)
        return task.verifier(workspace)


def test_the_solution_is_right_and_nothing_is_not(task: Task, prepared: Snapshot) -> None:
    assert play(prepared, task, cheap(task, task.solution)) == 1.0
    assert play(prepared, task, ()) == 0.0


def test_no_wrong_solution_is_rewarded(task: Task, prepared: Snapshot, subtests: pytest.Subtests) -> None:
    for mistake, script in MODULES[task.name].WRONG.items():
        with subtests.test(mistake):
            assert play(prepared, task, cheap(task, script)) == 0.0


def test_attempts_are_what_they_are_said_to_be(task: Task, prepared: Snapshot, subtests: pytest.Subtests) -> None:
    """Each by itself, and after the others: an attempt must not depend on what was tried before."""
    assert task.habits is not None
    first = cheap(task, (MODULES[task.name].LOOK[0],))
    for attempt in task.habits.attempts:
        steps = tuple(map(str, attempt.steps))
        with subtests.test(steps[0][:60]):
            assert play(prepared, task, (*first, *steps)) == float(attempt.right)
    wrong = [attempt for attempt in task.habits.attempts if not attempt.right]
    right = next(attempt for attempt in task.habits.attempts if attempt.right)
    tried = tuple(str(step) for attempt in (*wrong, right) for step in attempt.steps)
    assert play(prepared, task, (*first, *tried)) == 1.0


def test_what_is_said_to_live_there_lives_there(task: Task, prepared: Snapshot) -> None:
    (workspace,) = prepared.fork(1)
    assert isinstance(workspace, Workspace), workspace
    with workspace:
        programs = Counter(process.comm for process in workspace.processes())
        assert programs["python3"] >= 2
        answer = workspace.call(ToolCall("python", {"code": "len(table), pd.__name__"}))
        assert answer.output.strip() == "(100000, 'pandas')"
    stand_ins = any("stand-in" in used for used in roster().values())
    assert (80e6 if stand_ins else 150e6) < prepared.size < 300e6


# -- habits


HABITS = Habits(
    opening=(("a", "A"), ("b", "B")),
    reading=("r1", "r2", "r3"),
    attempts=(Attempt(("good",), right=True), Attempt(("bad", "worse"), right=False)),
    check=("check",),
    again=("again",),
    closing=("end",),
)


def commands(seed: int) -> list[str]:
    return [str(call.args["command"]) for call in HABITS.path(seed).calls]


def test_a_seed_is_a_path() -> None:
    assert HABITS.path(3) == HABITS.path(3)
    assert len({tuple(commands(seed)) for seed in range(50)}) > 10


def test_openings_are_mostly_the_usual_one() -> None:
    first = Counter(commands(seed)[0] for seed in range(1000))
    assert set(first) == {"a", "A"}
    assert 850 < first["a"] < 950


def test_a_path_goes_on_until_it_is_right_or_out_of_ideas() -> None:
    for seed in range(100):
        steps = commands(seed)
        assert steps[-1] == "end"
        assert HABITS.path(seed).right is ("good" in steps)
        assert steps.index("good") < len(steps) - 2 and steps[steps.index("good") + 1] == "check"
        if "bad" in steps:  # tried first, since nothing is tried after what is right
            assert steps.index("bad") < steps.index("good")


def test_patience_bounds_the_attempts() -> None:
    impatient = Habits(**{**vars(HABITS), "patience": 1})
    ends = [impatient.path(seed) for seed in range(200)]
    assert {path.right for path in ends} == {True, False}
    assert all(sum(call.args["command"] == "check" for call in path.calls) == 1 for path in ends)


def test_every_call_is_thought_about_as_long_as_recorded_policies_do() -> None:
    rng = random.Random(1)
    times = sorted(thought(rng) for _ in range(4000))
    for share, seconds in THINKING[1:-2]:
        assert times[int(share * 4000)] == pytest.approx(seconds, rel=0.15)
    assert times[0] >= 2.0 and times[-1] <= 60.0
    path = HABITS.path(1)
    assert len(path.thinking) == len(path.calls)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_paths_fit_the_step_limit(task: Task) -> None:
    assert task.habits is not None
    paths = [task.habits.path(seed) for seed in range(300)]
    assert max(len(path.calls) for path in paths) < task.step_limit
    assert {path.right for path in paths} == {True, False}
