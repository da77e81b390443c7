"""bunshin/Desktop-v0 as an environment: pictures, text, states, forks, many at once, and its shipped tasks."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bunshin_gym  # registers the ids
import needs
from bunshin_gym.desktop.env import DesktopEnv
from bunshin_gym.task import Task, Taskset

TASKS = Taskset.load("desktop")
PROGRAMS = {"desktop_letter": "mousepad", "desktop_files": "pcmanfm", "desktop_drawing": "mtpaint"}
MODULES = {task.name: importlib.import_module(f"bunshin_gym.envs.desktop.{task.name[8:]}") for task in TASKS}


def do(tool: str, **args: Any) -> str:
    return json.dumps({"tool": tool, "args": args})


@pytest.fixture(autouse=True)
def needed() -> None:
    for need in ("engine native", "Xvfb", "openbox", "xterm"):
        needs.require(need)


@pytest.fixture
def env() -> Iterator[DesktopEnv]:
    env = gym.make("bunshin/Desktop-v0", render_mode="rgb_array", size=(640, 480))
    assert isinstance(env.unwrapped, DesktopEnv)
    yield env.unwrapped
    env.close()


@pytest.mark.parametrize("observation", ["screen", "both"])
def test_gymnasium_has_nothing_to_say(observation: str) -> None:
    env = gym.make("bunshin/Desktop-v0", size=(640, 480), observation=observation)
    try:
        check_env(env.unwrapped)
    finally:
        env.close()


def test_an_episode(env: DesktopEnv) -> None:
    picture, info = env.reset(seed=1)
    assert picture.shape == (480, 640, 3) and picture.dtype == np.uint8 and picture in env.observation_space
    assert "terminal" in info["text"]
    typed, reward, terminated, truncated, info = env.step(do("type", text="echo $((6 * 7)) > /work/answer\n"))
    assert (reward, terminated, truncated, info["failure_kind"]) == (0.0, False, False, "")
    assert not np.array_equal(typed, picture) and np.array_equal(env.render(), typed)
    assert env.step(do("shell", command="cat /work/answer"))[4]["text"] == "42\n"
    for action, why in (
        ("click", "not JSON"),
        (do("click", x=1), "lack 'y'"),
        (do("fly"), "there is no tool 'fly'"),
        ('{"action": "left_click", "coordinate": [1, 2], "duration": 3}', "takes no 'duration'"),
    ):
        _, _, _, truncated, info = env.step(action)
        assert not info["call_valid"] and why in info["text"] and not truncated
    assert env.step('{"type": "click", "x": 600, "y": 450}')[4]["exit_code"] == 0
    assert env.step('{"action": "left_click", "coordinate": [600, 450]}')[4]["exit_code"] == 0
    last, reward, terminated, truncated, info = env.step(do("submit"))
    assert (reward, terminated, truncated) == (0.0, True, False) and last.shape == picture.shape


def test_states_and_forks_to_the_pixel(env: DesktopEnv) -> None:
    env.reset(seed=1)
    there, *_ = env.step(do("type", text="echo here"))
    state = env.clone_state()
    children = env.fork(2)
    try:
        ways = [child.step(do("type", text=f" and {number}"))[0] for number, child in enumerate(children)]
        assert not np.array_equal(*ways) and not any(np.array_equal(way, there) for way in ways)
    finally:
        for child in children:
            child.close()
    gone, *_ = env.step(do("keypress", keys=["CTRL", "U"]))
    assert not np.array_equal(gone, there)
    env.restore_state(state)
    assert np.array_equal(env.render(), there)
    assert np.array_equal(env.desktop().screenshot(), there)
    assert np.array_equal(env.step(do("type", text=" and 0"))[0], ways[0])
    state.close()


def test_many_at_once() -> None:
    envs = gym.make_vec("bunshin/Desktop-v0", num_envs=3, size=(320, 240), max_episode_steps=2)
    try:
        first, infos = envs.reset(seed=3)
        assert first.shape == (3, 240, 320, 3) and first in envs.observation_space and len(infos["text"]) == 3
        assert all(np.array_equal(first[0], other) for other in first[1:])
        then, *_ = envs.step([do("type", text=f"{number}" * 5) for number in range(3)])
        assert not any(np.array_equal(then[i], then[j]) for i in range(3) for j in range(i))
        _, _, _, truncated, _ = envs.step([do("screenshot")] * 3)
        assert truncated.all()
        again, *_ = envs.step([do("screenshot")] * 3)
        assert np.array_equal(again, first)
    finally:
        envs.close()


def test_a_lost_desktop_ends_the_episode(env: DesktopEnv) -> None:
    env.reset(seed=1)
    kill = do("shell", command="pkill -KILL -f driver.py; pkill -KILL Xvfb; sleep 0.2")
    picture, reward, terminated, truncated, info = env.step(kill)
    assert (reward, terminated, truncated, info["failure_kind"]) == (0.0, False, True, "workspace_error")
    assert picture in env.observation_space
    env.reset(seed=1)
    assert env.step(do("click", x=1, y=1))[4]["exit_code"] == 0


def play(env: DesktopEnv, script: tuple[str, ...]) -> float:
    """What the script earns."""
    env.reset()
    for action in script:
        *_, info = env.step(action)
        assert info["call_valid"] and not info["failure_kind"], (action, info)
    return float(env.step(do("submit"))[1])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_rewards_its_solution_and_nothing_else(task: Task, subtests: pytest.Subtests) -> None:
    needs.require(PROGRAMS[task.name])
    env = gym.make("bunshin/Desktop-v0", task=task).unwrapped
    assert isinstance(env, DesktopEnv)
    try:
        assert play(env, task.solution) == 1.0
        for mistake, script in {"nothing done": (), **MODULES[task.name].WRONG}.items():
            with subtests.test(mistake):
                assert play(env, script) == 0.0
    finally:
        env.close()


def test_the_package_knows_them() -> None:
    assert {task.name for task in TASKS} == set(PROGRAMS)
    assert bunshin_gym.Taskset.load("desktop_letter").names == ["desktop_letter"]
