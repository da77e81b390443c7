"""bench rollout: known schedules have known bounds, baselines are private, ours is not, and goals are goals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bunshin_gym.bench.rollout import playing, practice, recorded
from bunshin_gym.bench.rollout.bound import Timed, bound, by_history
from bunshin_gym.bench.rollout.figures import Ratio, best_of, compare, run
from bunshin_gym.bench.rollout.modes import ABLATIONS, COLD, OURS, READY, WARM, by_name
from bunshin_gym.bench.rollout.playing import Outcome
from bunshin_gym.bench.rollout.workload import Batch, Lot
from bunshin_gym.cli import rollout
from bunshin_gym.errors import TaskError
from bunshin_gym.group import Played
from bunshin_gym.task import Task
from bunshin_gym.tools import ToolCall, ToolResult
from bunshin_gym.workspace import Workspace, WorkspaceSpec


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between modes: on the dummy engine nothing has to be taken down by the kernel."""
    monkeypatch.setattr(playing, "_SETTLE", 0.0)


# -- the bound


def test_nothing_is_saved_where_nothing_recurs() -> None:
    found = bound([[Timed(1, 2, "a"), Timed(1, 3, "b")], [Timed(2, 5, "c")]])
    assert (found.latency, found.oracle, found.thinking) == (7, 7, 2)
    assert (found.tools, found.saved, found.hits, found.calls) == (10, 0, 0, 3)


def test_a_call_made_before_costs_nothing() -> None:
    found = bound([[Timed(1, 4, "a")], [Timed(9, 4, "a"), Timed(1, 2, "b")]])
    assert found.ends == (5, 12)
    assert (found.latency, found.oracle, found.saved, found.hits) == (16, 12, 4, 1)


def test_a_call_in_flight_is_waited_for() -> None:
    found = bound([[Timed(1, 4, "a")], [Timed(3, 4, "a")]])
    assert found.ends == (5, 5)
    assert (found.saved, found.hits) == (4, 1)


def test_whoever_asks_first_pays_whatever_its_number() -> None:
    assert bound([[Timed(3, 4, "a")], [Timed(1, 4, "a")]]).ends == (5, 5)


def test_busy_calls_share_the_processors() -> None:
    alone = [[Timed(0, 4, "a")], [Timed(0, 4, "b")]]
    assert bound(alone).latency == bound(alone, cores=2).latency == 4
    assert bound(alone, cores=1).latency == bound(alone, cores=1).oracle == 8
    # b has two seconds for itself after a has gone, and two at half speed before.
    assert bound([[Timed(0, 1, "a")], [Timed(0, 3, "b")]], cores=1).ends == (2, 4)


def test_what_is_shared_leaves_the_processors_to_others() -> None:
    found = bound([[Timed(0, 4, "a")], [Timed(0, 4, "a")], [Timed(0, 4, "b")]], cores=1)
    assert (found.latency, found.oracle) == (12, 8)


def test_calls_that_nobody_can_share_are_paid_by_each() -> None:
    found = bound([[Timed(1, 4, None)], [Timed(9, 4, None)]])
    assert (found.saved, found.hits, found.oracle) == (0, 0, 13)


def test_nothing_at_all_takes_no_time() -> None:
    assert bound([]).latency == bound([[]]).oracle == 0


def test_a_history_is_its_calls_in_order() -> None:
    a, b = by_history(["x", "y", "z"], "task"), by_history(["x", "z", "y"], "task")
    assert a[0] == b[0]
    assert len({*a, *b}) == 5
    assert by_history(["x"], "another") != a[:1]


# -- playing, on the engine that has no processes


def lot(scripts: tuple[tuple[str, ...], ...], engine: str = "dummy", think: float = 0.0) -> Lot:
    spec = WorkspaceSpec(engine=engine)
    calls = tuple(tuple(ToolCall("shell", {"command": c}) for c in script) for script in scripts)
    return Lot(
        task="tiny",
        names=tuple(f"tiny {n}" for n in range(len(scripts))),
        scripts=calls,
        thinking=tuple(tuple(think for _ in script) for script in scripts),
        prepare=lambda: Workspace(spec),
        timeout=10,
    )


TINY = Batch("tiny × 3", (lot((("echo a", "echo b"), ("echo a", "echo c"), ("echo a", "echo b", "echo d"))),))


def test_baselines_are_private_and_ours_shares() -> None:
    figures = run(TINY, (COLD, WARM, OURS), 2, watch=True)
    seen = figures.seen()
    assert seen is not None
    assert [mode.name for mode in seen.modes] == ["bunshin", "warm pool", "cold"]
    assert sum(branch.hits + branch.waits for branch in seen.tasks[0].tree) == 3
    assert [outcome.seen for outcome in figures.runs[0]] == [None] * 3
    json.dumps(figures.as_dict())
    assert [len(one) for one in figures.runs] == [3, 3]
    for mode in (COLD, WARM):
        for outcome in figures.outcomes(mode.name):
            assert (outcome.calls, outcome.run, outcome.hits) == (7, 7, 0)
            assert outcome.stats["prepared"] == 3
    for outcome in figures.outcomes(OURS.name):
        assert (outcome.calls, outcome.run, outcome.hits) == (7, 4, 3)
        assert outcome.stats["prepared"] == 1
    assert [(a.compared, a.equal, a.by_nature) for a in figures.answers] == [(7, 7, 0)] * 2
    assert [(b.hits, b.calls) for b in figures.bounds] == [(3, 7)] * 2
    assert [(b.hits, b.calls) for b in figures.histories] == [(3, 7)] * 2
    assert not any(outcome.failures for one in figures.runs for outcome in one)


def test_states_recur_where_histories_do_not() -> None:
    batch = Batch("tiny × 2", (lot((("pwd", "ls", "echo a > f"), ("ls", "pwd", "echo a > f"))),), busy=True)
    figures = run(batch, (WARM, OURS), 1)
    assert (figures.bounds[0].hits, figures.histories[0].hits) == (3, 0)
    assert figures.outcomes(OURS.name)[0].hits == 3


def test_start_up_is_hidden_from_both_or_from_none() -> None:
    figures = run(TINY, (WARM, READY), 1)
    assert [outcome.stats["prepared"] for outcome in figures.runs[0]] == [3, 1]
    assert [r.goal for r in rollout.ratios(figures) if r.what == "latency, template ready"] == [0.65]


def test_thinking_is_played_back() -> None:
    batch = Batch("tiny", (lot((("echo a", "echo b"),), think=0.15),))
    figures = run(batch, (WARM, OURS), 1)
    assert batch.thinking == pytest.approx(0.3)
    assert all(outcome.seconds >= 0.3 for outcome in figures.runs[0])
    assert figures.bounds[0].thinking == pytest.approx(0.3)
    assert lot((("echo a",),), think=2.0).faster(0.25).thinking == ((0.5,),)


def test_a_call_costs_the_least_it_took() -> None:
    slow, fast = Outcome("cold", ran={"tiny": [[3.0, 1.0]]}), Outcome("bunshin", ran={"tiny": [[2.0, 4.0]]})
    batch = Batch("tiny", (lot((("echo a", "echo b"),)),))
    assert best_of(batch, [slow, fast]).tools == 3.0


def test_a_call_that_looks_outside_is_in_no_bound() -> None:
    batch = Batch("tiny", (lot((("date", "echo a"), ("date", "echo a"))),))
    outcome = Outcome("cold", ran={"tiny": [[1.0, 1.0], [1.0, 1.0]]})
    assert best_of(batch, [outcome]).hits == 0


def outcome(mode: str, *texts: str) -> Outcome:
    played = Played("tiny 1", [ToolResult(text) for text in texts])
    return Outcome(mode, played={"tiny": [played]})


def test_answers_are_held_against_what_both_baselines_say() -> None:
    found = compare(
        [outcome("cold", "a", "b", "c"), outcome("warm pool", "a", "x", "c"), outcome("ours", "a", "b", "d")]
    )
    assert (found.compared, found.equal, found.by_nature) == (2, 1, 1)
    assert found.different == ["ours, tiny 1, call 3: 'c' is now 'd'"]


def test_modes_are_found_by_name() -> None:
    assert by_name("bunshin, cold") == (OURS, COLD)
    assert by_name(",".join(mode.name for mode in ABLATIONS)) == ABLATIONS
    with pytest.raises(TaskError, match="there is no mode 'quick'"):
        by_name("cold,quick")


def test_each_technique_can_be_off_by_itself() -> None:
    assert [(m.options.get("cache", True), m.options.get("share", True)) for m in ABLATIONS[1:3]] == [
        (False, True),
        (True, False),
    ]


# -- what is printed


def test_ratios_are_of_one_run_each() -> None:
    ratio = Ratio("peak", "warm pool", (0.5, 0.3, 0.4), goal=0.45)
    assert (ratio.median, ratio.reached) == (0.4, True)
    assert Ratio("peak", "warm pool", (0.5,), goal=0.45).reached is False
    assert Ratio("peak", "warm pool", (0.5,)).reached is None


def test_goals_are_those_of_the_workload() -> None:
    figures = run(TINY, (COLD, WARM, OURS), 1)
    goals = {(r.what, r.against): r.goal for r in rollout.ratios(figures)}
    assert goals["peak memory", "warm pool"] == 0.35
    assert goals["latency of the batch", "cold"] == 0.40
    assert ("latency, template ready", "warm pool") not in goals
    figures.batch = "swe"
    goals = {(r.what, r.against): r.goal for r in rollout.ratios(figures)}
    assert goals["latency of the batch", "warm pool"] == 1.01
    assert goals["peak memory", "warm pool"] is None
    text = "\n".join(rollout.lines(figures))
    assert "7 of 7 answers are those of the baselines" in text
    assert "3 of 7 calls" in text
    json.dumps(figures.as_dict())


# -- workloads


def test_practice_rollouts_open_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from bunshin_gym.envs.practice import build_c_project

    task = Task("x", "", habits=build_c_project.TASK.habits)
    made = practice.lot(task, 16, seed=1, engine="dummy")
    assert len(set(made.names)) == 16
    assert len(set(made.scripts)) > 8
    assert len({script[0] for script in made.scripts}) <= 3
    assert made == practice.lot(task, 16, seed=1, engine="dummy") or made.scripts == practice.lot(task, 16, 1).scripts
    assert practice.lot(task, 16, seed=2, engine="dummy").scripts != made.scripts
    with pytest.raises(TaskError, match="no habits"):
        practice.lot(Task("y", ""), 2, 0)


def test_recorded_groups_are_those_with_thinking_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(command: str, thinking: float | None) -> dict[str, object]:
        return {
            "arguments": {"command": command}, "recorded_output": "", "recorded_rc": 0, "thinking_seconds": thinking
        }  # fmt: skip

    def task(name: str) -> dict[str, object]:
        return {
            "task_id": name, "setup": [], "shell": ["sh", "-c"], "cwd": "/", "env": {}, "call_timeout_s": 5,
            "plain_bash": True,
        }  # fmt: skip

    names = ("a/one", "a/two", "b/alone", "b/untimed", "b/group")
    rollouts = {"a/one": 2, "a/two": 3, "b/alone": 1, "b/untimed": 2, "b/group": 2}
    times = {name: (None, 4.0, 2.0) if name != "b/untimed" else (None, None, None) for name in names}
    (tmp_path / "tasks").write_text("\n".join(json.dumps(task(name)) for name in names))
    (tmp_path / "rollouts").write_text(
        "\n".join(
            json.dumps({"task_id": name, "rollout_id": f"{name} {n}", "calls": [call("ls", t) for t in times[name]]})
            for name in names
            for n in range(rollouts[name])
        )
    )
    monkeypatch.setattr(recorded, "spec_of", lambda task, engine: WorkspaceSpec(engine=engine))
    found = recorded.batches(tmp_path / "tasks", tmp_path / "rollouts", scale=0.5, engine="dummy")
    assert [(b.name, [lot.task for lot in b.lots]) for b in found] == [("a", ["a/one", "a/two"]), ("b", ["b/group"])]
    assert found[0].lots[0].thinking == ((1.5, 2.0, 1.0),) * 2
    apart = recorded.batches(tmp_path / "tasks", tmp_path / "rollouts", apart=True, engine="dummy", rollouts=2)
    assert [(b.name, b.rollouts) for b in apart] == [("a/one", 2), ("a/two", 2), ("b/group", 2)]
    with pytest.raises(TaskError, match="no groups"):
        recorded.batches(tmp_path / "tasks", tmp_path / "rollouts", pattern="b/alone")
