"""The laws are tried on every engine, through the public Workspace API alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import needs
from bunshin_gym import Workspace, WorkspaceSpec

# What a workspace of these tests needs at most: small, so that many live side by side.
LIMITS = {"pids_limit": 128, "call_timeout": 60.0}


@pytest.fixture(params=["dummy", "native"])
def engine_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    needs.require(f"engine {name}")
    return name


@pytest.fixture
def start(engine_name: str) -> Iterator[Callable[..., Workspace]]:
    """Makes workspaces of the engine; what a test leaves open is closed after it."""
    made: list[Workspace] = []

    def make(**overrides: object) -> Workspace:
        made.append(Workspace(WorkspaceSpec(engine=engine_name, **(LIMITS | overrides))))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for workspace in made:
        workspace.close()
