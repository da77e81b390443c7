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
def scene() -> Iterator[Scene]:
    needs.require("engine native")
    yield from scenes(_rows)


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = os.environ.get("BUNSHIN_PROGRAMS_TABLE")
    if target and _rows:
        Path(target).write_text(table(_rows))
