"""Unit tests run on the dummy engine, whose faults are all cleared between tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from unit.rollouts import Begin, prepare

from bunshin_gym import BunshinVectorEnv, Workspace, WorkspaceSpec, engines
from bunshin_gym.engines.dummy import DummyEngine, Faults
from bunshin_gym.executor import Executor
from bunshin_gym.rollout import Rollout


@pytest.fixture
def dummy() -> DummyEngine:
    return cast(DummyEngine, engines.get("dummy"))


@pytest.fixture
def faults(dummy: DummyEngine) -> Iterator[Faults]:
    dummy.faults.clear()
    yield dummy.faults
    dummy.faults.clear()


@pytest.fixture
def begin(executor: Executor) -> Iterator[Begin]:
    """Begins rollouts of one task on the executor of the test; they end with it."""
    rollouts: list[Rollout] = []

    def make() -> Rollout:
        rollouts.append(executor.open("task", prepare))
        return rollouts[-1]

    yield make
    for rollout in rollouts:
        rollout.close()


@pytest.fixture
def make_vector() -> Iterator[Callable[..., BunshinVectorEnv]]:
    """Makes vector environments on the dummy engine; they are closed with the test."""
    made: list[BunshinVectorEnv] = []

    def build(num_envs: int = 3, **kwargs: Any) -> BunshinVectorEnv:
        made.append(BunshinVectorEnv(num_envs, **({"engine": "dummy"} | kwargs)))
        return made[-1]

    yield build
    for envs in made:
        envs.close()


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace(WorkspaceSpec(engine="dummy")) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_left(dummy: DummyEngine, request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test closes what it opened."""
    before = dummy.live
    yield
    if "workspace" not in request.fixturenames:
        assert dummy.live <= before, "the test left workspaces open"
