from __future__ import annotations

from collections.abc import Iterator

import pytest

from bunshin_gym.task import Task
from bunshin_gym.workspace import Snapshot, WorkspaceSpec


@pytest.fixture(scope="module")
def prepared(task: Task) -> Iterator[Snapshot]:
    """The prepared workspace of a task; every case plays in a fork of it."""
    with task.prepare(WorkspaceSpec(separate_stderr=False)) as workspace, workspace.snapshot() as snapshot:
        yield snapshot
