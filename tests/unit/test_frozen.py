"""What a spec may say of clock and randomness."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import bunshin_gym as bg
from bunshin_gym.frozen import check_seed, frozen_instant
from bunshin_gym.stamp import stamp_of


@pytest.mark.parametrize(
    ("time", "instant"),
    [
        (0, (0, 0)),
        (1_700_000_000.5, (1_700_000_000, 500_000_000)),
        (np.int64(5), (5, 0)),
        (0.9999999999, (0, 999_999_999)),
        (datetime(2001, 9, 9, 1, 46, 40, 7, tzinfo=UTC), (1_000_000_000, 7000)),
        (datetime(2001, 9, 9, 1, 46, 40), (1_000_000_000, 0)),
        (datetime(2001, 9, 9, 3, 46, 40, tzinfo=timezone(timedelta(hours=2))), (1_000_000_000, 0)),
        (None, None),
    ],
)
def test_instants(time: float | datetime | None, instant: tuple[int, int] | None) -> None:
    assert frozen_instant(time) == instant


@pytest.mark.parametrize(
    "time", [-1, 1e18, float("nan"), float("inf"), "2020-01-01", True, b"", [], datetime(1969, 1, 1)]
)
def test_what_is_no_instant(time: object) -> None:
    with pytest.raises(ValueError, match="frozen_time must be a number of seconds since 1970 or a datetime"):
        bg.WorkspaceSpec(frozen_time=time)  # type: ignore[arg-type]


def test_seeds() -> None:
    assert [check_seed(seed) for seed in (None, 0, np.uint64(2**64 - 1))] == [None, 0, 2**64 - 1]
    for seed in (-1, 1 << 64, 1.0, "1", True):
        with pytest.raises(ValueError, match="seed must be an integer from 0 to"):
            bg.WorkspaceSpec(seed=seed)  # type: ignore[arg-type]


def test_what_is_saved_is_of_one_clock_and_one_seed(tmp_path: Path) -> None:
    for name in ("proc", "dev", "tmp"):
        (tmp_path / name).mkdir()
    stamps = [
        stamp_of(bg.WorkspaceSpec(engine="dummy", image=bg.Image.directory(tmp_path), **fields), None)
        for fields in ({}, {"seed": 1}, {"seed": np.int64(1)}, {"seed": 2}, {"frozen_time": 1}, {"frozen_time": 2})
    ]
    one = stamps[1]
    assert one is not None
    assert [other and one.differs(other) for other in stamps] == [["spec"], [], [], ["spec"], ["spec"], ["spec"]]


def test_environments_and_tasks_take_them() -> None:
    env = gym.make("bunshin/Shell-v0", engine="dummy", frozen_time=5, seed=3)
    spec = env.unwrapped.workspace_spec  # type: ignore[attr-defined]
    assert (spec.frozen_time, spec.seed) == (5, 3)
    own = bg.Task("t", "…", spec={"seed": 4}).workspace_spec(spec)
    assert (own.frozen_time, own.seed) == (5, 4)
    env.close()
    envs = gym.make_vec("bunshin/Shell-v0", num_envs=2, engine="dummy", frozen_time=datetime(2040, 1, 1), seed=3)
    envs.close()
    with pytest.raises(ValueError, match="seed must be an integer"):
        gym.make("bunshin/Shell-v0", engine="dummy", seed="3")
