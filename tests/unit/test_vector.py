from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import ANSWER, COUNT, TASKS

from bunshin_gym import BunshinVectorEnv, Task, TaskError, WorkspaceError
from bunshin_gym.actions import TOOLS_INTERFACE
from bunshin_gym.engines.dummy import Faults

Make = Callable[..., BunshinVectorEnv]
NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


# -- law 6

ACTIONS = [
    "pwd",
    "cd /tmp",
    "X=$((X+1)); echo $X",
    "echo right > answer",
    "cat answer",
    "echo $X >> n; cat n",
    "exit 3",
    "date",
    "nosuch",
    "submit",
    "submit",
    "a\0b",
    "",
    "sleep 30 &",
    "bunshin-fault lose",
]


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_it_equals_single_environments_step_for_step(data: st.DataObject) -> None:
    draw = data.draw
    tools = draw(st.booleans())
    n = draw(st.integers(1, 3))
    mode = draw(st.sampled_from([NEXT, SAME, DISABLED]))
    limit = draw(st.sampled_from([None, 1, 3]))
    kwargs: dict[str, Any] = {"engine": "dummy", "taskset": TASKS, "cache": draw(st.booleans())}
    name = "bunshin/Tools-v0" if tools else "bunshin/Shell-v0"
    if limit is not None:
        kwargs["max_episode_steps"] = limit
    menu = st.sampled_from([*TOOLS_INTERFACE.samples, '{"tool": "submit"}', "{"] if tools else ACTIONS)
    ours = gym.make_vec(name, num_envs=n, autoreset_mode=mode, **kwargs)
    theirs = SyncVectorEnv([lambda: gym.make(name, **kwargs)] * n, autoreset_mode=mode)
    try:
        seed = draw(st.integers(0, 3))
        assert data_equivalence(ours.reset(seed=seed), theirs.reset(seed=seed), exact=True)
        for _ in range(draw(st.integers(1, 8))):
            actions = tuple(draw(menu) for _ in range(n))
            a, b = ours.step(actions), theirs.step(actions)
            assert data_equivalence(a, b, exact=True), (actions, a, b)
            over = np.logical_or(a[2], a[3])
            if mode is DISABLED and over.any():
                mask = over if draw(st.booleans()) else np.ones(n, dtype=np.bool_)
                again = [envs.reset(options={"reset_mask": mask.copy()}) for envs in (ours, theirs)]
                assert data_equivalence(*again, exact=True)
    finally:
        ours.close()
        theirs.close()


def test_frames_are_those_of_single_environments() -> None:
    kwargs: dict[str, Any] = {"engine": "dummy", "render_mode": "ansi"}
    ours = gym.make_vec("bunshin/Shell-v0", num_envs=2, **kwargs)
    theirs = SyncVectorEnv([lambda: gym.make("bunshin/Shell-v0", **kwargs)] * 2)
    for envs in (ours, theirs):
        envs.reset(seed=0)
        envs.step(("echo a", "submit"))
    assert ours.render() == theirs.render()
    ours.close()
    theirs.close()


# -- the Gymnasium interface


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED, "NextStep", "SameStep", "Disabled"])
def test_make_vec(mode: AutoresetMode | str) -> None:
    envs = gym.make_vec("bunshin/Shell-v0", num_envs=8, autoreset_mode=mode, engine="dummy")
    assert isinstance(envs, BunshinVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode(mode)
    assert envs.unwrapped.autoreset_mode is AutoresetMode(mode)  # type: ignore[attr-defined]
    observations, infos = envs.reset(seed=0)
    assert observations in envs.observation_space
    assert infos["_task"].all()
    actions = envs.action_space.sample()
    assert actions in envs.action_space
    observations, rewards, terminations, truncations, infos = envs.step(actions)
    assert observations in envs.observation_space
    assert (rewards.dtype, terminations.dtype, truncations.dtype) == (np.float64, np.bool_, np.bool_)
    assert rewards.shape == terminations.shape == truncations.shape == (8,)
    assert infos["_exit_code"].all()
    envs.close()
    envs.close()


def test_the_spec_survives_json() -> None:
    envs = gym.make_vec("bunshin/Shell-v0", num_envs=2, engine="dummy", autoreset_mode="SameStep")
    assert envs.spec is not None
    spec = gym.envs.registration.EnvSpec.from_json(envs.spec.to_json())
    again = gym.make_vec(spec)
    assert again.num_envs == 2
    assert again.metadata["autoreset_mode"] is SAME
    envs.close()
    again.close()


def test_a_key_keeps_its_type(make_vector: Make) -> None:
    envs = make_vector(autoreset_mode=SAME)
    envs.reset(seed=0)
    seen: dict[str, np.dtype[Any]] = {}
    for actions in [("pwd", "a\0b", "submit"), ("bunshin-fault lose", "exit 3", "nosuch"), ("submit",) * 3]:
        for key, value in envs.step(actions)[4].items():
            if isinstance(value, np.ndarray):
                assert seen.setdefault(key, value.dtype) == value.dtype


def test_final_observations_are_the_callers_own(make_vector: Make) -> None:
    envs = make_vector(autoreset_mode=SAME, task=ANSWER)
    envs.reset(seed=0)
    first = envs.step(("submit", "pwd", "pwd"))
    envs.step(("pwd", "submit", "pwd"))
    assert first[0][0] == ANSWER.instruction
    assert first[4]["final_obs"][0] == "submitted"
    assert first[4]["final_info"]["exit_reason"][0] == "submitted"
    assert first[4]["_final_obs"].tolist() == [True, False, False]


def test_misuse_is_told(make_vector: Make) -> None:
    for wrong in ({"num_envs": 0}, {"max_episode_steps": 0}, {"step_timeout": 0.0}, {"autoreset_mode": "x"}):
        with pytest.raises(ValueError):
            make_vector(**wrong)
    with pytest.raises(TypeError):
        make_vector(nope=1)
    envs = make_vector(autoreset_mode=DISABLED)
    with pytest.raises(ResetNeeded):
        envs.step(("pwd",) * 3)
    envs.reset()
    with pytest.raises(ValueError):
        envs.step(("pwd",) * 2)
    envs.step(("submit", "pwd", "pwd"))
    with pytest.raises(ResetNeeded, match=r"\[0\]"):
        envs.step(("pwd",) * 3)
    envs.close()
    for use in (envs.reset, lambda: envs.step(("pwd",) * 3)):
        with pytest.raises(ClosedEnvironmentError):
            use()


# -- reset: seeds, masks, options of each


def test_seeds_of_each(make_vector: Make) -> None:
    envs = make_vector(taskset=TASKS)
    assert data_equivalence(envs.reset(seed=5), envs.reset(seed=[5, 6, 7]))
    envs.reset(seed=[1, None, 1])
    assert envs.np_random_seed[0] == envs.np_random_seed[2] == 1
    with pytest.raises(ValueError):
        envs.reset(seed=[1, 2])


def test_only_the_masked_ones_are_reset(make_vector: Make) -> None:
    envs = make_vector(autoreset_mode=DISABLED)
    envs.reset(seed=0)
    envs.step(("X=1", "X=1", "submit"))
    options = {"reset_mask": np.array([False, True, True])}
    observations, infos = envs.reset(options=options)
    assert infos["_task"].tolist() == [False, True, True]
    assert observations[0] == ""
    assert envs.step(("echo .$X",) * 3)[0] == (".1\n", ".\n", ".\n")
    assert list(options) == ["reset_mask"], "the caller's own options are left alone"


def test_options_of_each(make_vector: Make) -> None:
    envs = make_vector(taskset=TASKS, autoreset_mode=DISABLED)

    def tasks(options: Any) -> list[str | None]:
        return list(envs.reset(options=options)[1]["task"])

    assert tasks({"task": "count"}) == ["count"] * 3
    assert tasks({"task": ["count", "answer", "count"]}) == ["count", "answer", "count"]
    assert tasks([{"task": "answer"}, {"task": "count"}, {"task": "answer"}]) == ["answer", "count", "answer"]
    mask = np.array([True, False, True])
    each = [{"task": "count"}, None, {"task": "count"}]
    assert tasks({"reset_mask": mask, "options": each}) == ["count", None, "count"]
    assert tasks({"reset_mask": mask, "task": ["answer", None, "answer"]}) == ["answer", None, "answer"]


@pytest.mark.parametrize(
    "options",
    [
        {"reset_mask": [True, True, True]},
        {"reset_mask": np.ones(3)},
        {"reset_mask": np.zeros(3, dtype=bool)},
        {"reset_mask": np.ones(2, dtype=bool)},
        {"task": ["a"]},
        [{}, {}],
    ],
)
def test_options_that_make_no_sense(make_vector: Make, options: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make_vector().reset(options=options)


def test_a_reset_that_fails_raises_once_all_have_ended(make_vector: Make, faults: Faults) -> None:
    envs = make_vector(taskset=TASKS)
    with pytest.raises(TaskError):
        envs.reset(options={"task": ["count", "nope", "count"]})
    envs.reset(options={"task": "count"})
    assert envs.step(("echo on",) * 3)[0] == ("on\n",) * 3


# -- together, and apart


def test_steps_run_at_the_same_time(make_vector: Make) -> None:
    """Each waits for all the others, so that one after another would never end."""
    barrier = threading.Barrier(4)

    def meet(workspace: object) -> float:
        barrier.wait(30)
        return 1.0

    envs = make_vector(4, task=Task("t", "do", verifier=meet), cache=False)
    envs.reset(seed=0)
    assert envs.step(("submit",) * 4)[1].tolist() == [1.0] * 4


def test_the_environments_of_a_task_are_forks_of_one_workspace(make_vector: Make) -> None:
    envs = make_vector(8, task=ANSWER)
    envs.reset(seed=0)
    assert envs.step([f"echo {i} >> answer; cat answer" for i in range(8)])[0] == tuple(
        f"wrong\n{i}\n" for i in range(8)
    )
    assert (envs.stats.prepared, envs.stats.forks) == (1, 7)
    envs.reset(seed=0)
    assert envs.step(["cat answer"] * 8)[0] == ("wrong\n",) * 8
    assert envs.stats.misses == 9


def test_send_and_receive(make_vector: Make) -> None:
    envs = make_vector()
    with pytest.raises(RuntimeError):
        envs.recv()
    envs.reset(seed=0)
    envs.send(("echo a", "echo b", "echo c"))
    for misuse in (lambda: envs.send(("pwd",) * 3), envs.clone_state, envs.reset):
        with pytest.raises((RuntimeError, ResetNeeded)):
            misuse()
    assert envs.recv()[0] == ("a\n", "b\n", "c\n")


def test_a_lost_workspace_truncates_its_own_environment(make_vector: Make) -> None:
    envs = make_vector(autoreset_mode=NEXT)
    envs.reset(seed=0)
    observations, _, _, truncations, infos = envs.step(("echo a", "bunshin-fault lose", "echo c"))
    assert (observations[0], observations[2]) == ("a\n", "c\n")
    assert truncations.tolist() == [False, True, False]
    assert infos["failure_kind"].tolist() == ["", "workspace_lost", ""]
    envs.step(("pwd",) * 3)
    assert envs.step(("echo on",) * 3)[0] == ("on\n",) * 3


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
def test_a_late_step_truncates_its_own_environment_and_is_never_seen_again(
    make_vector: Make, mode: AutoresetMode
) -> None:
    envs = make_vector(step_timeout=0.5, autoreset_mode=mode)
    envs.reset(seed=0)
    start = time.monotonic()
    observations, _, _, truncations, infos = envs.step(("echo a", "sleep 60; echo late", "echo c"))
    assert time.monotonic() - start < 30
    assert (observations[0], observations[2]) == ("a\n", "c\n")
    assert truncations.tolist() == [False, True, False]
    late = infos["final_info"] if mode is SAME else infos
    assert (late["timed_out"][1], late["failure_kind"][1]) == (True, "timed_out")
    if mode is NEXT:
        envs.step(("pwd",) * 3)
    if mode is DISABLED:
        envs.reset(options={"reset_mask": truncations})
    for i in range(3):
        assert envs.step((f"echo {i}",) * 3)[0] == (f"{i}\n",) * 3


def test_one_that_waits_for_a_stuck_sibling_is_late_too_and_both_recover(make_vector: Make) -> None:
    envs = make_vector(2, step_timeout=0.5)
    envs.reset(seed=0)
    truncations = envs.step(("sleep 60",) * 2)[3]
    assert truncations.all()
    envs.step(("pwd",) * 2)
    assert envs.step(("echo on",) * 2)[0] == ("on\n",) * 2


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_an_automatic_reset_that_fails_is_tried_again(make_vector: Make, mode: AutoresetMode, monkeypatch: Any) -> None:
    envs = make_vector(2, autoreset_mode=mode)
    envs.reset(seed=0)
    fail = [True]

    def reset(**kwargs: Any) -> Any:
        if fail[0]:
            raise WorkspaceError("cannot create a workspace: a fault was asked for")
        return type(env).reset(env, **kwargs)

    env = envs.envs[1]
    monkeypatch.setattr(env, "reset", reset)
    envs.step(("pwd", "submit"))
    if mode is NEXT:
        observations, _, _, truncations, infos = envs.step(("pwd", "pwd"))
        assert "could not be reset" in observations[1]
        assert (truncations[1], infos["failure_kind"][1]) == (False, "reset_failed")
    _, _, _, truncations, infos = envs.step(("pwd", "pwd"))
    assert truncations.tolist() == [False, True]
    late = infos["final_info"] if mode is SAME else infos
    assert late["failure_kind"][1] == "reset_failed"
    fail[0] = False
    envs.step(("pwd", "pwd"))
    if mode is SAME:
        assert envs.step(("pwd", "pwd"))[3].tolist() == [False, False]
    assert envs.step(("echo on", "echo on"))[0] == ("on\n", "on\n")


def test_a_fault_of_the_program_ends_one_environment_only(make_vector: Make, monkeypatch: Any) -> None:
    envs = make_vector(2)
    envs.reset(seed=0)

    def step(action: str) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(envs.envs[0], "step", step)
    _, _, _, truncations, infos = envs.step(("pwd", "pwd"))
    assert truncations.tolist() == [True, False]
    assert infos["failure_kind"][0] == "internal_error"
    envs.step(("pwd", "pwd"))
    assert envs.step(("echo on", "echo on"))[0] == ("on\n", "on\n")


def test_close_comes_back_whatever_the_workers_do(make_vector: Make) -> None:
    release = threading.Event()

    def stuck(workspace: object) -> float:
        release.wait(120)
        return 0.0

    envs = make_vector(2, task=Task("t", "do", verifier=stuck), step_timeout=0.3)
    envs.reset(seed=0)
    assert envs.step(("submit", "pwd"))[3].tolist() == [True, False]
    start = time.monotonic()
    envs.send(("pwd", "submit"))
    envs.close(timeout=1)
    assert time.monotonic() - start < 30
    release.set()


# -- states, attributes


def test_states_are_cloned_and_restored_together(make_vector: Make) -> None:
    envs = make_vector(2, task=COUNT)
    envs.reset(seed=0)
    envs.step(("X=a; echo $$", "X=b"))
    states = envs.clone_state()
    first = envs.step(("echo $X; X=c", "echo $X; X=c"))
    envs.restore_state(states)
    assert data_equivalence(envs.step(("echo $X; X=c", "echo $X; X=c")), first, exact=True)
    envs.restore_state([states[1], states[1]])
    assert envs.step(("echo $X", "echo $X"))[0] == ("b\n", "b\n")
    with pytest.raises(ValueError):
        envs.restore_state(states[:1])


def test_attributes_of_each(make_vector: Make) -> None:
    envs = make_vector(2)
    envs.reset(seed=0)
    assert envs.get_attr("step_timeout") == (None, None)
    assert len(envs.call("clone_state")) == 2
    envs.set_attr("mark", [1, 2])
    assert envs.get_attr("mark") == (1, 2)
    assert [schema["function"]["name"] for schema in envs.tools] == ["shell", "submit"]
    with pytest.raises(ValueError):
        envs.set_attr("mark", [1])
