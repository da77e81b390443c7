from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from bunshin_gym import Task, TaskError, Taskset, WorkspaceSpec
from bunshin_gym.engines.dummy import DummyEngine

SPEC = WorkspaceSpec(engine="dummy")


def test_preparing_puts_files_and_runs_the_set_up() -> None:
    task = Task("t", "do", files={"a/b.txt": b"text"}, setup=("cd a", "cat b.txt > c.txt", "export READY=1"))
    with task.prepare(SPEC) as workspace:
        assert workspace.run("pwd; cat c.txt; echo $READY").output == "/work/a\ntext1\n"


def test_a_set_up_that_fails_says_where_and_leaves_nothing(dummy: DummyEngine) -> None:
    before = dummy.live
    with pytest.raises(TaskError, match=r"task 't': 'cat nothing' ended with exited 1: cat: nothing: No such file"):
        Task("t", "do", setup=("true", "cat nothing", "true")).prepare(SPEC)
    assert dummy.live == before


def test_the_spec_of_a_task_wins_over_the_base() -> None:
    task = Task("t", "do", call_timeout=5, spec={"cwd": "/elsewhere", "env": {"A": "1"}})
    assert task.workspace_spec(SPEC).cwd == "/elsewhere"
    assert task.workspace_spec(SPEC).call_timeout == 5
    assert task.workspace_spec(SPEC).engine == "dummy"


def test_an_image_is_made_when_it_is_needed_and_only_where_there_is_none() -> None:
    made = []

    def image() -> object:
        made.append(1)
        return object()

    task = Task("t", "do", image=image)  # type: ignore[arg-type]
    assert made == []
    spec = task.workspace_spec(SPEC)
    assert spec.image is not None
    assert len(made) == 1
    assert task.workspace_spec(spec).image is spec.image
    assert len(made) == 1


@pytest.mark.parametrize("wrong", [{"name": ""}, {"step_limit": 0}, {"spec": {"nope": 1}}])
def test_a_task_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Task(**({"name": "t", "instruction": "do"} | wrong))  # type: ignore[arg-type]


def test_a_taskset_is_a_sequence_with_names() -> None:
    tasks = [Task(name, "do") for name in "abc"]
    taskset = Taskset(tasks, "letters")
    assert len(taskset) == 3
    assert list(taskset) == tasks
    assert taskset["b"] is taskset[1] is tasks[1]
    assert taskset[1:].names == ["b", "c"]
    assert tasks[0] in taskset
    with pytest.raises(TaskError, match="a, b, c"):
        taskset["d"]
    with pytest.raises(TaskError):
        Taskset([tasks[0], tasks[0]])
    with pytest.raises(TaskError):
        Taskset([])


def test_shipped_tasks_are_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = ModuleType("bunshin_gym.envs")
    package.__path__ = [str(tmp_path)]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        code = f"from bunshin_gym.task import Task\nTASK = Task({name!r}, 'do {name}')\n"
        (tmp_path / name / "__init__.py").write_text(code)
        monkeypatch.delitem(sys.modules, f"bunshin_gym.envs.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "bunshin_gym.envs", package)
    assert Taskset.load("basic").names == ["one", "two"]
    assert Taskset.load("two")[0].instruction == "do two"
    assert Taskset.load("playground")[0].verifier is None
    with pytest.raises(TaskError, match="basic, playground, one, two"):
        Taskset.load("three")
    for name in ("one", "two"):
        sys.modules.pop(f"bunshin_gym.envs.{name}", None)
