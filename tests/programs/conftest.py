"""Real programs, forked in the middle of work.

What the machine lacks is skipped by name; scripts/programs installs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.scene import Row, Scene, scenes, table

import needs

_rows: list[Row] = []


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    needs.require("engine native")
    xfail = request.node.get_closest_marker("xfail")
    yield from scenes(_rows, xfail.kwargs["reason"] if xfail else "")


def pytest_sessionfinish(exitstatus: int) -> None:
    target = os.environ.get("BUNSHIN_PROGRAMS_TABLE")
    if target and exitstatus == pytest.ExitCode.OK:
        Path(target).write_text(table(_rows))
