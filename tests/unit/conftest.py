"""Unit tests run on the dummy engine, whose faults are all cleared between tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from bunshin_gym import Workspace, WorkspaceSpec, engines
from bunshin_gym.engines.dummy import DummyEngine, Faults


@pytest.fixture
def dummy() -> DummyEngine:
    return cast(DummyEngine, engines.get("dummy"))


@pytest.fixture
def faults(dummy: DummyEngine) -> Iterator[Faults]:
    dummy.faults.clear()
    yield dummy.faults
    dummy.faults.clear()


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
