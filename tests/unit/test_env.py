from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.env_match import check_environments_match
from unit.tasks import ANSWER, BROKEN, COUNT, NONSENSE, TASKS

import bunshin_gym as bg
from bunshin_gym import ForkError, ShellEnv, Task, TaskError, ToolsEnv, WorkspaceEnv
from bunshin_gym.actions import SHELL_INTERFACE, TOOLS_INTERFACE
from bunshin_gym.engines.dummy import DummyEngine, Faults

Make = Callable[..., WorkspaceEnv]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[WorkspaceEnv] = []

    def build(kind: type[WorkspaceEnv] = ShellEnv, **kwargs: Any) -> WorkspaceEnv:
        made.append(kind(**({"engine": "dummy"} | kwargs)))
        return made[-1]

    yield build
    for env in made:
        env.close()


def tool(name: str, **args: Any) -> str:
    return json.dumps({"tool": name, "args": args})


class TestGymnasium:
    @pytest.mark.parametrize("name", ["bunshin/Shell-v0", "bunshin/Tools-v0"])
    @pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
    @pytest.mark.filterwarnings("error")
    def test_the_checker_passes(self, name: str, render_mode: str | None) -> None:
        env = gym.make(name, engine="dummy", render_mode=render_mode)
        check_env(env.unwrapped)
        env.close()

    @pytest.mark.filterwarnings("error")
    def test_the_checker_passes_on_a_taskset(self) -> None:
        env = gym.make("bunshin/Shell-v0", engine="dummy", taskset=TASKS)
        check_env(env.unwrapped)
        env.close()

    def test_the_id_imports_the_package(self) -> None:
        gym.make("bunshin_gym:bunshin/Shell-v0", engine="dummy").close()

    @pytest.mark.parametrize("name", ["bunshin/Shell-v0", "bunshin/Tools-v0"])
    def test_specs_survive_json(self, name: str) -> None:
        env = gym.make(name, engine="dummy", task="playground", memory_limit="1G", step_timeout=5.0)
        assert env.spec is not None
        spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
        assert spec == env.spec
        again = gym.make(spec)
        assert again.unwrapped.workspace_spec == env.unwrapped.workspace_spec  # type: ignore[attr-defined]
        env.close()
        again.close()

    def test_nothing_starts_before_reset(self, make: Make, dummy: DummyEngine, faults: Faults) -> None:
        before = dummy.live
        faults.fail_creates = 1
        env = make()
        assert (dummy.live, faults.fail_creates) == (before, 1)
        env.close()
        env.close()

    def test_two_environments_with_one_seed_match(self, make: Make) -> None:
        check_environments_match(make(taskset=TASKS), make(taskset=TASKS, cache=False), 40, seed=3)

    def test_closed_and_unready_environments_say_so(self, make: Make) -> None:
        env = make()
        with pytest.raises(ResetNeeded):
            env.step("pwd")
        env.reset()
        env.step("submit")
        with pytest.raises(ResetNeeded):
            env.step("pwd")
        env.close()
        for use in (env.reset, lambda: env.step("pwd"), env.clone_state):
            with pytest.raises(ClosedEnvironmentError):
                use()

    def test_wrong_arguments_are_refused_at_once(self, make: Make) -> None:
        for wrong in ({"nope": 1}, {"engine_name": "x"}, {"call_timeout": 3}):
            with pytest.raises(TypeError):
                make(**wrong)
        for wrong in ({"render_mode": "human"}, {"step_timeout": 0}, {"network": "all"}):
            with pytest.raises(ValueError):
                make(**wrong)
        with pytest.raises(bg.EngineUnavailable):
            make(engine="nope").reset()

    def test_results_are_the_callers_own(self, make: Make) -> None:
        env = make()
        env.reset(seed=1)
        info = env.step("pwd")[4]
        info["exit_code"] = 99
        env.reset(seed=1)
        assert env.step("pwd")[4]["exit_code"] == 0


class TestSteps:
    def test_the_shell_persists(self, make: Make) -> None:
        env = make()
        assert env.reset(seed=1) == (bg.task.PLAYGROUND.instruction, {"task": "playground"})
        assert env.step("cd /tmp && echo hi > a && ls")[0] == "a\n"
        observation, reward, terminated, truncated, info = env.step("pwd; cat a; nosuch")
        assert observation == "/tmp\nhi\nbash: nosuch: command not found\n[exit code 127]"
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert info == {
            "exit_code": 127,
            "exit_reason": "exited",
            "output_truncated": False,
            "failure_kind": "",
            "call_valid": True,
            "timed_out": False,
        }

    def test_the_verifier_rewards_a_submission(self, make: Make) -> None:
        env = make(task=ANSWER)
        assert env.reset()[0] == ANSWER.instruction
        env.step("echo right > answer")
        assert env.step(" submit\n")[:4] == ("submitted", 1.0, True, False)
        env.reset()
        assert env.step("submit")[1:4] == (0.25, True, False)

    def test_the_verifier_rewards_at_the_step_limit_too(self, make: Make) -> None:
        env = make(task=ANSWER)
        env.reset()
        for _ in range(3):
            assert not any(env.step("echo right > answer")[2:4])
        observation, reward, terminated, truncated, info = env.step("cat answer")
        assert (observation, reward, terminated, truncated) == ("right\n", 1.0, False, True)
        assert info["failure_kind"] == ""

    @pytest.mark.parametrize("task", [BROKEN, NONSENSE])
    def test_a_verifier_that_fails_is_no_reward_and_no_exception(self, make: Make, task: Task) -> None:
        env = make(task=task)
        env.reset()
        _, reward, terminated, _, info = env.step("submit")
        assert (reward, terminated, info["failure_kind"]) == (0.0, True, "verifier_failed")

    def test_a_timeout_is_seen_with_what_there_was(self, make: Make) -> None:
        env = make(task=Task("t", "do", call_timeout=0.2))
        env.reset()
        observation, _, terminated, truncated, info = env.step("echo partial; sleep 60")
        assert observation.startswith("partial\n[timed out after 0.2 s")
        assert (terminated, truncated, info["exit_code"], info["exit_reason"]) == (False, False, 124, "timeout")
        assert env.step("echo on")[0] == "on\n"

    def test_an_exit_is_told(self, make: Make) -> None:
        env = make()
        env.reset()
        observation, _, _, _, info = env.step("echo bye; exit 3")
        assert observation.startswith("bye\n[the shell exited")
        assert (info["exit_code"], info["exit_reason"]) == (3, "shell_exited")

    def test_output_beyond_the_limit_is_marked(self, make: Make) -> None:
        env = make(output_limit=1000)
        env.reset()
        observation, *_, info = env.step("seq 10000")
        assert info["output_truncated"]
        assert "left out" in observation
        assert observation in env.observation_space

    def test_the_largest_output_still_fits(self, make: Make) -> None:
        env = make(output_limit=1 << 20)
        env.reset()
        assert env.step("seq 200000")[0] in env.observation_space

    @pytest.mark.parametrize("action", ["a\0b", "\ud800", "x" * 70_000, 3, b"ls", None])
    def test_an_action_that_is_none_is_answered(self, make: Make, action: Any) -> None:
        env = make()
        env.reset()
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation.startswith("[invalid action: ")
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert (info["call_valid"], info["exit_code"], info["exit_reason"]) == (False, -1, "not_run")

    def test_too_many_of_those_in_a_row_end_the_episode(self, make: Make) -> None:
        env = make(task=Task("t", "do", verifier=lambda workspace: 1.0))
        env.reset()
        for _ in range(7):
            assert not env.step("a\0b")[3]
        assert not env.step("true")[3]
        for _ in range(7):
            assert not env.step("a\0b")[3]
        _, reward, terminated, truncated, info = env.step("a\0b")
        assert (reward, terminated, truncated, info["failure_kind"]) == (0.0, False, True, "invalid_calls")

    @pytest.mark.parametrize("fault", ["lose_at_call", "bunshin-fault lose"])
    def test_a_lost_workspace_truncates_and_the_next_episode_is_fine(
        self, make: Make, faults: Faults, fault: str
    ) -> None:
        env = make(task=Task("t", "do", verifier=lambda workspace: 1.0))
        env.reset()
        env.step("echo 1")
        if fault == "lose_at_call":
            faults.lose_at_call = 1
        _, reward, terminated, truncated, info = env.step("bunshin-fault lose" if "bunshin" in fault else "echo 2")
        assert (reward, terminated, truncated, info["failure_kind"]) == (0.0, False, True, "workspace_lost")
        assert (info["exit_code"], info["exit_reason"]) == (-1, "workspace_lost")
        with pytest.raises(ResetNeeded):
            env.step("echo 3")
        env.reset()
        assert env.step("echo 2")[0] == "2\n"

    def test_a_workspace_lost_before_the_verdict_is_no_exception(self, make: Make, faults: Faults) -> None:
        env = make(task=ANSWER)
        env.reset()
        env.step("echo $$")
        env._episode.rollout.workspace.close()  # type: ignore[union-attr]
        _, reward, terminated, truncated, info = env.step("submit")
        assert (reward, terminated, truncated, info["failure_kind"]) == (0.0, False, True, "workspace_lost")

    def test_a_fork_that_fails_is_no_exception(self, make: Make, faults: Faults) -> None:
        env = make()
        env.reset()
        env.reset()  # the first rollout had the prepared workspace
        faults.fail_forks = 1
        _, _, _, truncated, info = env.step("echo x")
        assert (truncated, info["failure_kind"]) == (True, "workspace_error")

    def test_a_step_that_passes_its_deadline_is_given_up(self, make: Make) -> None:
        env = make(step_timeout=0.3)
        env.reset()
        assert env.step("X=1; echo quick")[0] == "quick\n"
        _, reward, terminated, truncated, info = env.step("sleep 60")
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert (info["failure_kind"], info["timed_out"]) == ("timed_out", True)
        with pytest.raises(ResetNeeded):
            env.step("echo late")
        env.reset()
        assert env.step("echo $X.")[0] == ".\n"
        assert env.stats.overdue == 1

    def test_a_second_episode_with_the_same_calls_runs_none_of_them(self, make: Make) -> None:
        env = make(task=ANSWER)
        for _ in range(3):
            env.reset(seed=1)
            env.step("echo right > answer")
            assert env.step("submit")[1] == 1.0
        assert (env.stats.misses, env.stats.hits, env.stats.verdicts_shared) == (1, 2, 2)


class TestTools:
    def test_calls_are_json(self, make: Make) -> None:
        env = make(ToolsEnv)
        env.reset()
        assert env.step(tool("shell", command="pwd"))[0] == "/work\n"
        assert env.step(tool("write_file", path="a", content="text"))[0] == "wrote 4 bytes to a\n"
        assert env.step(tool("read_file", path="a"))[0] == "text"
        assert env.step(tool("python", code="x = 41; x + 1"))[0] == "42\n"
        assert env.step(tool("exec", argv=["cat", "a"]))[0] == "text"
        assert env.step(tool("submit"))[2]

    @pytest.mark.parametrize(
        ("action", "says"),
        [
            ("ls", "not JSON"),
            ("[]", "names no tool"),
            ('{"args": {}}', "names no tool"),
            ('{"tool": "nope"}', "no tool 'nope'"),
            ('{"tool": "shell"}', "lack 'command'"),
            ('{"tool": "shell", "args": {"command": 1}}', "must be a JSON string"),
            ('{"tool": "shell", "args": {"command": "ls"}, "x": 1}', "no entry 'x'"),
            ('{"tool": "shell", "args": ["ls"]}', "must be a JSON object"),
            ('{"tool": "submit", "args": {"x": 1}}', "unknown entry"),
            ("[" * 100_000, "at most"),
            ("[" * 60_000, "not JSON"),
        ],
    )
    def test_what_is_wrong_is_said(self, make: Make, action: str, says: str) -> None:
        env = make(ToolsEnv)
        env.reset()
        observation, *_, info = env.step(action)
        assert says in observation
        assert not info["call_valid"]

    def test_schemas(self, make: Make) -> None:
        names = [schema["function"]["name"] for schema in make(ToolsEnv).tools]
        assert names == ["shell", "exec", "python", "read_file", "write_file", "submit"]
        assert [schema["function"]["name"] for schema in make().tools] == ["shell", "submit"]

    def test_samples_are_valid_and_do_no_harm(self, make: Make) -> None:
        for kind, interface in ((ShellEnv, SHELL_INTERFACE), (ToolsEnv, TOOLS_INTERFACE)):
            env = make(kind)
            env.reset()
            for action in interface.samples:
                assert action in env.action_space
                _, _, terminated, truncated, info = env.step(action)
                assert info["call_valid"] and not terminated and not truncated


class TestTasks:
    def test_the_seed_picks_the_task(self, make: Make) -> None:
        env = make(taskset=TASKS)
        env.reset(seed=0)
        picked = [env.reset()[1]["task"] for _ in range(20)]
        env.reset(seed=0)
        assert [env.reset()[1]["task"] for _ in range(20)] == picked
        assert set(picked) == set(TASKS.names)

    def test_options_pick_the_task(self, make: Make) -> None:
        env = make(taskset=TASKS)
        assert env.reset(options={"task": "count"}) == (COUNT.instruction, {"task": "count"})
        assert env.reset(options={"task": ANSWER})[1] == {"task": "answer"}
        with pytest.raises(TaskError):
            env.reset(options={"task": "nope"})

    def test_one_task_of_a_set(self, make: Make) -> None:
        assert make(task="count", taskset=TASKS).reset()[1] == {"task": "count"}
        with pytest.raises(TaskError):
            make(task="nope", taskset=TASKS)

    def test_a_preparation_that_fails_raises_at_reset_and_may_be_tried_again(self, make: Make, faults: Faults) -> None:
        env = make()
        faults.fail_creates = 1
        with pytest.raises(bg.WorkspaceError):
            env.reset()
        env.reset()
        assert env.step("echo on")[0] == "on\n"


class TestStates:
    def test_a_state_is_restored_any_number_of_times(self, make: Make) -> None:
        env = make(task=COUNT)
        env.reset(seed=1)
        env.step("echo 1 > n; X=1; echo $$")
        state = env.clone_state()
        results = []
        for _ in range(3):
            env.restore_state(state)
            results.append([env.step("cat n; echo $X; echo 2 > n; X=2"), env.step("cat n; echo $X")])
        assert results[0] == results[1] == results[2]
        assert results[0][0][0] == "1\n1\n"
        assert results[0][1][0] == "2\n2\n"
        assert results[0][1][3], "the step limit counts from the state's own steps"
        state.close()
        with pytest.raises(ValueError):
            env.restore_state(state)

    def test_the_random_numbers_are_part_of_it(self, make: Make) -> None:
        env = make(taskset=TASKS)
        env.reset(seed=5)
        state = env.clone_state()
        first = [env.reset()[1]["task"] for _ in range(10)]
        env.restore_state(state)
        assert [env.reset()[1]["task"] for _ in range(10)] == first

    def test_forks_are_independent(self, make: Make) -> None:
        env = make()
        env.reset(seed=1)
        env.step("X=1; echo a > f; date")
        a, b = env.fork(2)
        try:
            assert type(a) is type(env)
            assert a.step("echo $X; cat f; X=2; echo b > f")[0] == "1\na\n"
            assert b.step("echo $X; cat f")[0] == "1\na\n"
            assert env.step("echo $X; cat f")[0] == "1\na\n"
            env.close()
            assert a.step("echo $X; cat f")[0] == "2\nb\n"
        finally:
            a.close()
            b.close()

    def test_a_fork_equals_a_replay(self, make: Make) -> None:
        env, other = make(), make()
        for e in (env, other):
            e.reset(seed=1)
            e.step("X=1")
        (fork,) = env.fork(1)
        try:
            for action in ("echo $X", "ls", "submit"):
                assert data_equivalence(fork.step(action), other.step(action), exact=True)
        finally:
            fork.close()

    def test_a_state_after_the_end_is_over(self, make: Make) -> None:
        env = make()
        env.reset()
        env.step("submit")
        state = env.clone_state()
        env.reset()
        env.restore_state(state)
        with pytest.raises(ResetNeeded):
            env.step("pwd")

    def test_states_of_others_are_refused(self, make: Make) -> None:
        env, other = make(), make()
        env.reset()
        other.reset()
        with pytest.raises(ValueError, match="another environment"):
            env.restore_state(other.clone_state())

    def test_a_state_that_cannot_be_forked_is_refused_by_name(self, make: Make) -> None:
        env = make(ToolsEnv)
        env.reset()
        env.step(tool("shell", command="date"))
        env.step(tool("python", code="g = (i for i in [1])"))
        with pytest.raises(ForkError, match="generator"):
            env.clone_state()
        assert env.step(tool("shell", command="echo on"))[0] == "on\n"

    def test_nothing_is_left_of_states_that_are_thrown_away(self, make: Make) -> None:
        env = make()
        env.reset()
        for _ in range(5):
            env.step("date")
            env.clone_state()
        env.step("date")
        assert env._executor.tree.size[2] == 1


class TestRender:
    def test_ansi_is_the_transcript(self, make: Make) -> None:
        env = make(render_mode="ansi")
        assert env.render() == ""
        env.reset()
        env.step("echo a")
        assert env.render() == f"{bg.task.PLAYGROUND.instruction}\n$ echo a\na\n"

    def test_rgb_array_is_a_picture_of_its_own(self, make: Make) -> None:
        env = make(render_mode="rgb_array")
        env.reset()
        before = env.render()
        env.step("echo a")
        after = env.render()
        assert isinstance(before, np.ndarray)
        assert isinstance(after, np.ndarray)
        assert after.shape == (400, 640, 3)
        assert after.dtype == np.uint8
        assert not np.array_equal(before, after)

    def test_frames_follow_restored_states(self, make: Make) -> None:
        env = make(render_mode="ansi")
        env.reset()
        env.step("echo a")
        before = env.render()
        state = env.clone_state()
        env.step("echo b")
        env.restore_state(state)
        assert env.render() == before

    def test_without_a_mode_nothing_is_drawn_or_kept(self, make: Make) -> None:
        env = make()
        env.reset()
        env.step("echo a")
        with pytest.warns(UserWarning):
            assert env.render() is None
        assert env._episode is not None
        assert env._episode.progress.transcript == ()


def test_stats_are_apart_from_info(make: Make) -> None:
    env = make()
    _, info = env.reset()
    stats = copy.deepcopy(env.stats.as_dict())
    assert stats["prepared"] == 1
    assert not set(stats) & set(info)
