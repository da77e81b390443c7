"""Law 5: after close nothing remains; also after `kill -9` of the program that owned it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from contract.laws import forks

import residue
from bunshin_gym import Workspace, WorkspaceError, WorkspaceSpec

Start = Callable[..., Workspace]


def _left(before: residue.Look) -> list[str]:
    return residue.since(before)


def test_workspaces_snapshots_and_forks_leave_nothing(start: Start) -> None:
    start().close()  # what an engine keeps for the life of the program is there from now on
    before = residue.look()
    descriptors = len(os.listdir("/proc/self/fd"))
    with start() as source:
        source.run("sleep 600 & echo x > /tmp/f")
        with source.snapshot() as snapshot:
            children = [*snapshot.fork(3), *source.fork(2)]
        for child in children:
            assert isinstance(child, Workspace)
            child.run("sleep 700 & echo y > /tmp/f")
            child.close()
    assert _left(before) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_closing_twice_and_in_any_order(start: Start) -> None:
    with start() as source:
        snapshot = source.snapshot()
        (child,) = forks(source, 1)
        snapshot.close()
        snapshot.close()
        source.close()
        source.close()
        assert child.run("echo on").output == "on\n"
        child.close()
        child.close()
        assert not child.alive
        with pytest.raises(WorkspaceError):
            child.run("echo off")


def test_close_ends_a_running_call(start: Start) -> None:
    import threading

    from bunshin_gym import ExitReason

    workspace = start()
    results = []
    caller = threading.Thread(target=lambda: results.append(workspace.run("sleep 600", timeout=60)))
    caller.start()
    time.sleep(0.5)
    workspace.close()
    caller.join(30)
    assert not caller.is_alive()
    assert results[0].exit_reason is ExitReason.WORKSPACE_LOST


PROGRAM = """
import sys, time
from bunshin_gym import Workspace, WorkspaceSpec
source = Workspace(WorkspaceSpec(engine=sys.argv[1]))
source.run("sleep 86399.5 &")
snapshot = source.snapshot()
children = snapshot.fork(2)
print("ready", flush=True)
time.sleep(600)
"""


def _sleepers() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"86399.5" in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_kill_9_of_the_owner_takes_everything_along(engine_name: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, engine_name], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        assert len(_sleepers()) == (0 if engine_name == "dummy" else 3)
        program.send_signal(signal.SIGKILL)
        program.wait(60)
    deadline = time.monotonic() + 30
    while _sleepers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _sleepers() == []


def test_a_forked_copy_of_the_program_does_not_own_its_workspaces(engine_name: str) -> None:
    with Workspace(WorkspaceSpec(engine=engine_name)) as workspace:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                workspace.close()  # a dead handle here: this must not reach the parent's workspace
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert workspace.run("echo on").output == "on\n"
