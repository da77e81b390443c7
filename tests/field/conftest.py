"""What breaks in today's tools, and not in ours: every row of the field report is a test, named by the row's id.

A bound in these tests only tells a call that returns from one that hangs; nothing here measures speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import needs
from bunshin_gym import Workspace, WorkspaceSpec


@pytest.fixture
def start() -> Iterator[Callable[..., Workspace]]:
    """Makes native workspaces; what a test leaves open is closed after it."""
    needs.require("engine native")
    made: list[Workspace] = []

    def make(**overrides: object) -> Workspace:
        made.append(Workspace(WorkspaceSpec(**({"call_timeout": 60.0} | overrides))))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for workspace in made:
        workspace.close()


@pytest.fixture
def workspace(start: Callable[..., Workspace]) -> Workspace:
    return start()
