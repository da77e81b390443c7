"""What other libraries do with a vector environment, beside SyncVectorEnv of the single one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import DictInfoToList, NormalizeReward, RecordEpisodeStatistics
from unit.tasks import ANSWER, TASKS

from bunshin_gym import BunshinVectorEnv

Make = Callable[..., BunshinVectorEnv]
MODES = list(AutoresetMode)
ACTIONS = ["echo right > answer", "submit", "pwd", "submit", "cat answer"]


def both(mode: AutoresetMode) -> list[VectorEnv[Any, Any, Any]]:
    kwargs: dict[str, Any] = {"engine": "dummy", "taskset": TASKS}
    single = SyncVectorEnv([lambda: gym.make("bunshin/Shell-v0", **kwargs)] * 3, autoreset_mode=mode)
    return [gym.make_vec("bunshin/Shell-v0", num_envs=3, autoreset_mode=mode, **kwargs), single]


def play(envs: Any, mode: AutoresetMode) -> list[Any]:
    """What some steps give; each environment is at another place in the same list."""
    seen: list[Any] = [envs.reset(seed=3)]
    for step in range(12):
        given = envs.step(tuple(ACTIONS[(step + i) % len(ACTIONS)] for i in range(3)))
        seen.append(copy.deepcopy(given))  # a masked reset changes what RecordEpisodeStatistics has given out
        over = np.logical_or(seen[-1][2], seen[-1][3])
        if mode is AutoresetMode.DISABLED and over.any():
            seen.append(envs.reset(options={"reset_mask": over}))
    return seen


@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_counted_alike(mode: AutoresetMode) -> None:
    counted = []
    for envs in map(RecordEpisodeStatistics, both(mode)):
        steps = [one for one in play(envs, mode) if len(one) == 5]
        counted.append([envs.episode_count, list(envs.return_queue), list(envs.length_queue)])
        for *_, terminations, truncations, infos in steps:
            assert np.array_equal(infos.get("_episode", [False] * 3), terminations | truncations)
        envs.close()
    if mode is not AutoresetMode.DISABLED:
        assert counted[0] == counted[1]
        return
    # SyncVectorEnv takes the mask out of the caller's options, so that the wrapper begins to count anew for all.
    assert counted[0][1] == counted[1][1]
    assert sum(counted[0][2]) > sum(counted[1][2])


@pytest.mark.parametrize("mode", MODES)
def test_rewards_and_infos_through_wrappers(mode: AutoresetMode) -> None:
    seen = []
    for envs in both(mode):
        wrapped = DictInfoToList(NormalizeReward(envs))
        seen.append(play(wrapped, mode))
        wrapped.close()
        assert envs.closed
    assert data_equivalence(*seen, exact=True)
    assert [len(given[4]) for given in seen[0] if len(given) == 5] == [3] * 12


def test_spaces_can_be_copied_and_pickled(make_vector: Make) -> None:
    envs = make_vector(2, task=ANSWER)
    for name in ("action_space", "observation_space", "single_action_space", "single_observation_space"):
        space = getattr(envs, name)
        for twin in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
            assert twin == space
            twin.seed(5), space.seed(5)
            assert twin.sample() == space.sample()


def test_a_single_text_is_no_batch(make_vector: Make) -> None:
    envs = make_vector(3)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="not a single text: 'pwd'"):
        envs.step("pwd")
    assert envs.step(np.array(["pwd"] * 3))[0] == ("/work\n",) * 3


def test_methods_wait_for_steps(make_vector: Make) -> None:
    with make_vector(2, render_mode="ansi") as envs:
        envs.reset(seed=0)
        envs.send(["pwd"] * 2)
        assert envs.get_attr("render_mode") == ("ansi", "ansi")
        with pytest.raises(RuntimeError, match="cannot call render: steps have been sent"):
            envs.call("render")
        envs.recv()
        assert len(envs.call("render")) == 2
    assert envs.closed
