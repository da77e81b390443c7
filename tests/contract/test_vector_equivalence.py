"""Law 6: a BunshinVectorEnv equals n single environments, step for step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import bunshin_gym  # noqa: F401  (registers the ids)

STEPS = [
    ("echo 1; echo 1 > f", "pwd", "ls"),
    ("cat f", "cd /tmp; pwd", "cat f"),
    ("X=1", "submit", "exit 3"),
    ("echo $X", "echo after", "pwd"),
    ("submit", "submit", "echo $?"),
    ("pwd", "pwd", "pwd"),
    ("echo last", "false", "ls"),
]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("cache", [True, False])
def test_step_for_step(engine_name: str, mode: AutoresetMode, cache: bool) -> None:
    kwargs = {"engine": engine_name, "cache": cache}
    ours = gym.make_vec("bunshin/Shell-v0", num_envs=3, autoreset_mode=mode, **kwargs)
    theirs = SyncVectorEnv([lambda: gym.make("bunshin/Shell-v0", **kwargs)] * 3, autoreset_mode=mode)
    try:
        assert data_equivalence(ours.reset(seed=7), theirs.reset(seed=7), exact=True)
        for actions in STEPS:
            assert data_equivalence(ours.step(actions), theirs.step(actions), exact=True), actions
    finally:
        ours.close()
        theirs.close()


def test_disabled_with_a_mask(engine_name: str) -> None:
    mode = AutoresetMode.DISABLED
    ours = gym.make_vec("bunshin/Shell-v0", num_envs=3, autoreset_mode=mode, engine=engine_name)
    theirs = SyncVectorEnv([lambda: gym.make("bunshin/Shell-v0", engine=engine_name)] * 3, autoreset_mode=mode)
    try:
        assert data_equivalence(ours.reset(seed=7), theirs.reset(seed=7), exact=True)
        for actions in STEPS:
            a, b = ours.step(actions), theirs.step(actions)
            assert data_equivalence(a, b, exact=True), actions
            mask = np.logical_or(a[2], a[3])
            if mask.any():
                again = [env.reset(options={"reset_mask": mask.copy()}) for env in (ours, theirs)]
                assert data_equivalence(*again, exact=True)
    finally:
        ours.close()
        theirs.close()
