from __future__ import annotations

import copy
import pickle
import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Text
from gymnasium.vector.utils import batch_space, create_empty_array
from hypothesis import given
from hypothesis import strategies as st

from bunshin_gym.spaces import UnicodeText


@given(st.text(max_size=50))
def test_any_text_up_to_the_length_is_in_it(text: str) -> None:
    space = UnicodeText(50, min_length=0)
    assert text in space
    assert text + "x" * 51 not in space


def test_what_is_not_text_is_not_in_it() -> None:
    space = UnicodeText(10)
    assert 3 not in space
    assert b"a" not in space
    assert np.str_("a") in space


def test_membership_does_not_depend_on_the_length() -> None:
    space, text = UnicodeText(1 << 24), "\u2264" * (1 << 23)
    start = time.perf_counter()
    for _ in range(1000):
        assert text in space
    assert time.perf_counter() - start < 5.0


def test_samples_are_drawn_from_the_menu_by_the_seed() -> None:
    space = UnicodeText(10, samples=("a", "b", "c"))
    space.seed(3)
    first = [space.sample() for _ in range(20)]
    space.seed(3)
    assert [space.sample() for _ in range(20)] == first
    assert set(first) == {"a", "b", "c"}


def test_without_a_menu_a_sample_is_short_text_of_the_space() -> None:
    space = UnicodeText(1 << 20, min_length=1, seed=0)
    assert all(sample in space and len(sample) < 100 for sample in (space.sample() for _ in range(50)))


def test_masks_and_bad_menus_are_refused() -> None:
    with pytest.raises(ValueError):
        UnicodeText(5).sample(mask=(None, np.zeros(3, dtype=np.int8)))
    with pytest.raises(ValueError):
        UnicodeText(2, samples=("long",))


def test_it_is_small_and_equal_after_pickling() -> None:
    space = UnicodeText(65536, samples=("ls",))
    data = pickle.dumps(space)
    assert len(data) < 20_000
    assert pickle.loads(data) == space == copy.deepcopy(space)
    assert space != UnicodeText(65536)
    assert space != Text(65536)
    assert Text(65536) != space


def test_it_is_batched_as_a_tuple() -> None:
    space = UnicodeText(10, samples=("a", "b"))
    batch = batch_space(space, 3)
    assert batch.sample() in batch
    assert create_empty_array(space, 3) == ("", "", "")
    assert not space.is_np_flattenable


def test_shared_memory_is_refused_instead_of_going_stale() -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        gym.make_vec("bunshin/Shell-v0", num_envs=1, vectorization_mode="async", engine="dummy")


def test_worker_processes_without_shared_memory_work() -> None:
    envs = gym.make_vec(
        "bunshin/Shell-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False},
        engine="dummy",
    )
    try:
        envs.reset(seed=0)
        assert envs.step(("echo a", "echo b"))[0] == ("a\n", "b\n")
        assert envs.step(("echo c", "echo d"))[0] == ("c\n", "d\n")
    finally:
        envs.close()
