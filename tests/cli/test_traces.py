"""Recorded trajectories: read, made into calls, and compared with what another run gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bunshin_gym import traces
from bunshin_gym.cli import entry
from bunshin_gym.errors import TaskError
from bunshin_gym.tools import ExitReason, ToolResult, validate


def record(**changes: Any) -> dict[str, Any]:
    return {
        "tool": "bash",
        "arguments": {"command": "ls"},
        "recorded_output": "a\n",
        "recorded_rc": 0,
        "replay_rc": 0,
        "replay_similarity": 1.0,
        **changes,
    }


def task(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": "x/one",
        "setup": ["mkdir /app"],
        "shell": ["bash", "-c"],
        "cwd": "/app",
        "env": {"PATH": "/bin"},
        "call_timeout_s": 30,
        "plain_bash": True,
        **changes,
    }


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    tasks, trajectories = tmp_path / "tasks.jsonl", tmp_path / "trajectories.jsonl"
    tasks.write_text("\n".join(json.dumps(t) for t in (task(), task(task_id="y/two", plain_bash=False))))
    rollouts = [
        {"task_id": "x/one", "rollout_id": f"x/one#{n}", "calls": [record(), record(replay={"command": "ls -a"})]}
        for n in (1, 2)
    ]
    trajectories.write_text("\n".join(map(json.dumps, rollouts)) + "\n\n")
    return tasks, trajectories


def test_plain_tasks_are_loaded_with_their_rollouts(files: tuple[Path, Path]) -> None:
    (found,) = traces.load(*files)
    assert (found.name, found.timeout, found.cwd) == ("x/one", 30.0, "/app")
    assert [rollout.name for rollout in found.rollouts] == ["x/one#1", "x/one#2"]
    assert [call.command for call in found.rollouts[0].calls] == ["ls", "ls -a"]


def test_a_pattern_takes_others_too(files: tuple[Path, Path]) -> None:
    assert [found.name for found in traces.load(*files, "y/*")] == ["y/two"]
    assert [found.name for found in traces.load(*files, "*")] == ["x/one", "y/two"]


def test_a_call_runs_in_a_fresh_shell_with_the_recorded_environment(files: tuple[Path, Path]) -> None:
    (found,) = traces.load(*files)
    call = found.call(found.rollouts[0].calls[0])
    validate(call)
    shell = ["/usr/bin/env", "-i", "HOME=/root", "PATH=/bin", "bash", "-c"]
    assert call.args == {"command": "ls", "shell": shell, "cwd": "/app", "stdin": "open"}


@pytest.mark.parametrize("line", ["{", "[]", '{"task_id": "x/one"}', json.dumps(task(call_timeout_s="soon"))])
def test_what_is_no_record_is_named_with_its_place(files: tuple[Path, Path], line: str) -> None:
    files[0].write_text(f"{json.dumps(task())}\n{line}\n")
    with pytest.raises(TaskError, match=r"tasks\.jsonl, line 2: "):
        traces.load(*files)


def test_a_missing_file_is_named(files: tuple[Path, Path]) -> None:
    with pytest.raises(TaskError, match=r"cannot read .*nowhere"):
        traces.load(files[0].with_name("nowhere"), files[1])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"recorded_rc": 1, "replay_rc": 0}, None),
        ({"recorded_rc": None, "replay_rc": 3}, 3),
        ({"timed_out": True, "recorded_rc": None, "replay_timed_out": True, "replay_rc": None}, 124),
        ({"timed_out": True, "recorded_rc": None, "replay_rc": 1}, None),
    ],
)
def test_the_expected_code_is_where_the_sources_agree(
    files: tuple[Path, Path], changes: dict[str, Any], code: int | None
) -> None:
    rollout = {"task_id": "x/one", "rollout_id": "x/one#1", "calls": [record(**changes)]}
    files[1].write_text(json.dumps(rollout))
    (found,) = traces.load(*files)
    assert found.rollouts[0].calls[0].code == code


@pytest.mark.parametrize(
    ("ours", "recorded"),
    [
        ("made 2026-11-29 22:05:01\n", "made 2025-08-08 05:38:30\n"),
        ("report_20261129_220045.txt", "report_20250808_053800.txt"),
        ("Generated: Fri Aug  8 05:38:30 UTC 2025", "Generated: Sun Nov 29 22:00:45 UTC 2026"),
        ("Ran 9 tests in 0.003s", "Ran 9 tests in 0.127s"),
        ("<object at 0x7f31c0>", "<object at 0x55aa00>"),
        ("commit 3c7d1d7f", "commit ec0e8e84"),
        ("-rw-r--r-- 1 root root  12 Nov 29 22:00 a", "-rw-r--r-- 1 root root 340 Aug  8 05:38 a"),
        ("total 8\n", "total 24\n"),
        ("a  \nb\n", "a\nb"),
    ],
)
def test_what_differs_by_nature_is_the_same(ours: str, recorded: str) -> None:
    assert traces.similarity(ours, recorded) == 1.0


def test_what_differs_in_meaning_is_not() -> None:
    assert traces.similarity("9 passed", "8 passed") < 0.99
    assert traces.similarity("", "something") == 0.0
    assert traces.similarity("b\na\n", "a\nb\n") == 0.99


def test_only_the_kept_beginning_of_a_recording_is_compared() -> None:
    assert traces.similarity("abcdef", "abc", recorded_length=6) == 1.0
    assert traces.similarity("abcdef", "abc", recorded_length=3) < 0.99


def test_a_comparison_knows_time_outs(files: tuple[Path, Path]) -> None:
    (found,) = traces.load(*files)
    call = found.rollouts[0].calls[0]
    late = traces.compare(call, ToolResult("a\n", exit_code=None, exit_reason=ExitReason.TIMEOUT))
    assert (late.code, late.agrees) == (124, False)
    fine = traces.compare(call, ToolResult("a\n"))
    assert (fine.code, fine.agrees, fine.comparable, fine.similarity) == (0, True, True, 1.0)


def test_the_looks_of_recorded_calls_are_counted(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    commands = ["ls -a", "ls -l", "date", "python3 test.py", "sleep 9 &"]
    rows = [
        {"task_id": "x/one", "rollout_id": "x/one#1", "calls": [record(arguments={"command": c}) for c in commands]}
    ]
    files[1].write_text("\n".join(map(json.dumps, rows)))
    assert entry.main(["bench", "looks", "--trajectories", str(files[0].parent), "--sample", "4"]) == 0
    text = capsys.readouterr().out
    for line in ("shared, on trust", "by its own history  times", "run each time       clock", "python3 1"):
        assert line in text
    assert "4. [" in text and "5. [" not in text
    assert entry.main(["bench", "looks", "--trajectories", str(files[0].parent), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["calls"] == 5
    assert {(row["verdict"], row["reason"]): row["calls"] for row in found["rows"]} == {
        ("shared", ""): 1, ("shared, on trust", ""): 1, ("by its own history", "times"): 1,
        ("run each time", "clock"): 1, ("run each time", "leaves something running"): 1,
    }  # fmt: skip
