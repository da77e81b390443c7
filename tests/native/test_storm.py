"""Law 7 under fire: forks of trees that spawn, die, signal and map at full speed; the programs check themselves."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bunshin_gym import ForkError, ToolCall, Workspace, WorkspaceError, WorkspaceSpec
from native import play

pytestmark = [pytest.mark.engine("native")]
PROGRAM = (Path(__file__).parent / "storm.py").read_text()
STORMS = ["forks", "threads", "execs", "vforks", "signals", "mappings", "files", "sockets", "bombs"]


def start(workspace: Workspace, storm: str) -> None:
    workspace.write_file("/tmp/storm.py", PROGRAM.encode())
    script = f"python3 /tmp/storm.py {storm} </dev/null >/tmp/{storm}.out 2>&1 &"
    workspace.call(ToolCall("exec", {"argv": ["bash", "-c", script]}), 30)
    wait_for_rounds(workspace, storm)


def rounds(workspace: Workspace, storm: str) -> int:
    """How many rounds the storm has counted; it writes down the first thing that is wrong, and stops."""
    broken = play.read(workspace, f"/tmp/{storm}.broken")
    assert not broken, f"{storm}: {broken}"
    return int(play.read(workspace, f"/tmp/{storm}.rounds") or 0)


def wait_for_rounds(workspace: Workspace, storm: str) -> None:
    """The storm goes on, and finds nothing wrong."""
    before, deadline = rounds(workspace, storm), time.monotonic() + 30
    while rounds(workspace, storm) <= before:
        if time.monotonic() > deadline:
            said = workspace.run(f"cat /tmp/{storm}.out").output
            pytest.fail(f"{storm} stands still at {before}: {workspace.processes()} {said}")
        time.sleep(0.003)


def fork_once(workspace: Workspace, storm: str) -> bool:
    """Whether there was room for it."""
    try:
        (child,) = workspace.fork(1)
    except ForkError as error:
        # At its limit of processes a tree with dead leaders cannot be made again: somebody has to play them.
        assert (storm, error.errno) == ("bombs", errno.EAGAIN), error
        return False
    if isinstance(child, WorkspaceError):
        raise child
    with child:
        wait_for_rounds(child, storm)
    return True


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace(WorkspaceSpec(engine="native", pids_limit=100)) as made:
        yield made


@pytest.mark.timeout(200)
@pytest.mark.parametrize("storm", STORMS)
def test_forks_in_a_storm(workspace: Workspace, storm: str) -> None:
    start(workspace, storm)
    full = sum(not fork_once(workspace, storm) for _ in range(12))
    assert full <= 3
    wait_for_rounds(workspace, storm)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("storm", STORMS)
def test_a_hundred_and_twenty_forks_in_a_storm(workspace: Workspace, storm: str) -> None:
    """More than a thousand, over all storms."""
    start(workspace, storm)
    full = 0
    for n in range(120):
        try:
            snapshot = workspace.snapshot()
        except ForkError as error:
            assert (storm, error.errno) == ("bombs", errno.EAGAIN), error
            full += 1
            assert full <= 12
            continue
        with snapshot:
            if n % 4 == 0:
                (child,) = snapshot.fork(1)
                if isinstance(child, WorkspaceError):
                    raise child
                with child:
                    wait_for_rounds(child, storm)
    wait_for_rounds(workspace, storm)


@pytest.mark.timeout(200)
def test_forks_in_all_storms_at_once() -> None:
    with Workspace(WorkspaceSpec(engine="native", pids_limit=400)) as workspace:
        for storm in STORMS[:-1]:
            start(workspace, storm)
        for _ in range(8):
            with workspace.snapshot() as snapshot:
                (child,) = snapshot.fork(1)
            if isinstance(child, WorkspaceError):
                raise child
            with child:
                for storm in STORMS[:-1]:
                    wait_for_rounds(child, storm)
        for storm in STORMS[:-1]:
            wait_for_rounds(workspace, storm)


def test_a_storm_that_will_not_stand_still_is_given_up_in_time(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seal has a deadline. However short it is: an error, and the source runs on."""
    monkeypatch.setattr("bunshin_gym.engines.native_workspace.SEAL_TIMEOUT", 0.0005)
    start(workspace, "forks")
    for _ in range(20):
        begin = time.monotonic()
        try:
            workspace.snapshot().close()
        except ForkError as error:
            assert "in time" in str(error) or "appearing" in str(error), error
        assert time.monotonic() - begin < 10
        wait_for_rounds(workspace, "forks")
