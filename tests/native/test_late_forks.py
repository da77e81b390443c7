"""Forks of snapshots that have rested: their clocks go on from the seal, over generations, and they say so."""

from __future__ import annotations

import re
import time

import pytest

from bunshin_gym import Workspace, WorkspaceError, WorkspaceSpec
from native import play

pytestmark = [pytest.mark.engine("native"), pytest.mark.needs("gcc")]

VICTIMS = {victim.name: victim for victim in play.all_victims()}
# Everything that waits for time or is about clocks.
TIMED = [
    "alarm_on_time", "asyncio_server", "futex_with_timeout", "interval_timers", "periodic_timers_without_a_burst",
    "posix_timers", "sleep_until", "timerfd_relative", "waits_keep_their_rest", "wall_clock_goes_on",
]  # fmt: skip
REST = 1.5
CLOCKS = "python3 -c 'import time; print(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time())'"


def clocks(workspace: Workspace) -> list[float]:
    return [float(word) for word in workspace.run(CLOCKS).output.split()]


@pytest.mark.parametrize("name", TIMED)
def test_a_victim_is_well_in_late_forks(name: str) -> None:
    with Workspace(WorkspaceSpec()) as source:
        place = play.start(source, VICTIMS[name])
        with source.snapshot() as snapshot:
            time.sleep(REST)
            (child,) = snapshot.fork(1)
        assert isinstance(child, Workspace), child
        with child, child.snapshot() as second:
            time.sleep(REST)
            (grandchild,) = second.fork(1)
            assert isinstance(grandchild, Workspace), grandchild
            with grandchild:
                # Less than either snapshot rested: what passed in between does not count.
                wrong = play.verdicts([("child", child), ("grandchild", grandchild)], place, 1.0)
                assert not wrong, wrong


def test_clocks_go_on_from_the_seal_over_generations() -> None:
    with Workspace(WorkspaceSpec()) as source:
        mark = clocks(source)
        lost = 0.0
        workspaces: list[Workspace] = []
        for _ in range(3):
            with (workspaces or [source])[-1].snapshot() as snapshot:
                sealed = time.monotonic()
                time.sleep(1.5)
                (fork,) = snapshot.fork(1)
                assert not isinstance(fork, WorkspaceError), fork
                lost += time.monotonic() - sealed
                workspaces.append(fork)
            (note,) = fork.report.notes
            assert (found := re.match(r"clocks go on from the seal, (\d+\.\d+) s ago", note)), note
            assert 1.5 <= float(found[1]) < 6
            seen = clocks(fork)
            wall = seen[2] - mark[2]
            assert seen[0] - mark[0] == pytest.approx(wall - lost, abs=0.3)
            assert seen[1] - mark[1] == pytest.approx(wall - lost, abs=0.3)
            (close,) = fork.fork(1)  # one that follows closely keeps the clocks of its source
            assert isinstance(close, Workspace)
            assert not close.report.notes and not fork.report.notes
            here, there = clocks(fork), clocks(close)
            assert there[0] - here[0] == pytest.approx(there[2] - here[2], abs=0.1)
            close.close()
        for workspace in workspaces:
            workspace.close()


def test_without_time_namespaces_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUNSHIN_WITHOUT", "time-namespace")
    with Workspace(WorkspaceSpec()) as source:
        mark = clocks(source)
        place = play.start(source, VICTIMS["periodic_timers_without_a_burst"])
        with source.snapshot() as snapshot:
            time.sleep(1.0)
            (fork,) = snapshot.fork(1)
        assert isinstance(fork, Workspace), fork
        with fork:
            (note,) = fork.report.notes
            assert "clocks have gone on for " in note
            seen = clocks(fork)
            assert seen[0] - mark[0] == pytest.approx(seen[2] - mark[2], abs=0.1)
            assert not play.verdicts([("fork", fork)], place, 3.0)
