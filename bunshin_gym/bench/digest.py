"""What a state digest costs: by how many files were changed since the last snapshot, and with idle processes beside."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bunshin_gym.bench.timing import Part, Step, one_child
from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace, WorkspaceSpec

__all__ = ["DigestRow", "measure_digests"]

PROCESSES = 12


@dataclass(frozen=True)
class DigestRow:
    """Milliseconds: the first digest after the change; one with nothing changed since (median); the same after a
    snapshot; and the first in a fork of that. `call_ms`: an empty shell call, asked for digests or not."""

    what: str
    first_ms: float
    again_ms: float
    sealed_ms: float
    fork_ms: float
    call_ms: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_digests(
    engine: str, *, files: Sequence[int] = (0, 10, 1_000, 10_000), repeats: int = 25, on_part: Part, on_step: Step
) -> list[DigestRow]:
    """One row for each number of changed files, and one for idle processes."""
    on_part("digests", len(files) + 1)
    rows = []
    for count in files:
        make = f"mkdir -p many; cd many; for ((i = 0; i < {count}; i++)); do echo $i > $i; done; cd /work; sleep 0.1"
        rows.append(_row(engine, f"{count:,} changed files", [ToolCall("shell", {"command": make})], repeats))
        on_step()
    sleeps = ToolCall("exec", {"argv": ["bash", "-c", "sleep 100000 >/dev/null 2>&1 </dev/null &"]})
    rows.append(_row(engine, f"{PROCESSES} idle processes", [sleeps] * PROCESSES, repeats))
    on_step()
    return rows


def _row(engine: str, what: str, calls: list[ToolCall], repeats: int) -> DigestRow:
    with Workspace(WorkspaceSpec(engine=engine)) as workspace:
        workspace.digest(b"start")
        for call in calls:
            workspace.call(call, 120)
        first = workspace.digest(b"changed").milliseconds
        again = _median(workspace, repeats)
        empty = statistics.median(workspace.run(":").duration * 1e3 for _ in range(repeats))
        with workspace.snapshot() as snapshot:
            sealed = _median(workspace, repeats)
            with one_child(snapshot) as child:
                return DigestRow(what, first, again, sealed, child.digest(b"fork").milliseconds, empty)


def _median(workspace: Workspace, repeats: int) -> float:
    return statistics.median(workspace.digest(b"again").milliseconds for _ in range(repeats))
