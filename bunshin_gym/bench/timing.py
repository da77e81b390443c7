"""What the benchmarks of forks measure with: milliseconds, one child, medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from bunshin_gym.errors import WorkspaceError
from bunshin_gym.workspace import ForkReport, Snapshot, Workspace

__all__ = ["Part", "Step", "median_stages", "ms_since", "ninety_percent", "one_child"]

Part = Callable[[str, int], None]  # told what is measured next, and in how many steps
Step = Callable[[], None]  # told that a step of it is done


def ms_since(begin: float) -> float:
    """Milliseconds since `time.perf_counter()` gave `begin`."""
    return (time.perf_counter() - begin) * 1000


def one_child(snapshot: Snapshot) -> Workspace:
    """One fork. Raises the WorkspaceError that came in its place."""
    (child,) = snapshot.fork(1)
    if isinstance(child, WorkspaceError):
        raise child
    return child


def ninety_percent(times: Sequence[float]) -> float:
    """The time within which nine of ten were done."""
    return sorted(times)[int(0.9 * (len(times) - 1))]


def median_stages(reports: Iterable[ForkReport]) -> dict[str, float]:
    """The median of each stage that any report names; a report without it counts as 0."""
    reports = list(reports)
    names = dict.fromkeys(name for report in reports for name in report.stages)
    return {name: statistics.median(report.stages.get(name, 0.0) for report in reports) for name in names}
