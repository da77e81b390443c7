"""Law 7: a failed fork leaves the source running and untouched."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contract.laws import forks, python

from bunshin_gym import ProcessInfo, SnapshotClosed, UnsupportedResource, Workspace

Start = Callable[..., Workspace]

# Something a fork cannot take along, by engine: code for the python tool, and code that lets go of it again.
_INOTIFY = "import ctypes; held = ctypes.CDLL(None).inotify_init1(0)"
_NETLINK = "import socket; held = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"
_IO_URING = "import ctypes; held = ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120))"
UNFORKABLE = {
    "dummy": [("held = (i for i in [1])", "held = None")],
    "native": [
        (_IO_URING, "import os; os.close(held)"),
        (_NETLINK, "held.close()"),
        (_INOTIFY, "import os; os.close(held)"),
    ],
}


def _refusal(source: Workspace, engine_name: str) -> tuple[UnsupportedResource, str, list[ProcessInfo]]:
    """Make the workspace hold something that its engine refuses: the error, how to let go of it, and the processes."""
    for hold, let_go in UNFORKABLE[engine_name]:
        python(source, hold)
        processes = source.processes()
        try:
            source.snapshot().close()
        except UnsupportedResource as error:
            return error, let_go, processes
    pytest.skip("needs something this engine cannot fork, and it can fork all that was tried")


def test_what_cannot_be_forked_is_refused_by_name_and_nothing_is_changed(start: Start, engine_name: str) -> None:
    with start() as source:
        source.run("X=before; cd /tmp; echo content > f; sleep 600 &")
        refused, let_go, processes = _refusal(source, engine_name)
        assert refused.pid > 0
        assert refused.comm
        assert str(refused).startswith("cannot fork: pid ")
        assert "\n" not in str(refused)
        assert source.alive
        assert source.processes() == processes
        assert source.run("echo $X; pwd; cat f").output == "before\n/tmp\ncontent\n"
        python(source, let_go)
        (child,) = forks(source, 1)
        with child:
            assert child.run("echo $X; pwd; cat f").output == "before\n/tmp\ncontent\n"


def test_a_closed_snapshot_is_refused(start: Start) -> None:
    with start() as source:
        source.run("X=1")
        snapshot = source.snapshot()
        snapshot.close()
        with pytest.raises(SnapshotClosed):
            snapshot.fork(1)
        with pytest.raises(ValueError):
            source.restore(snapshot)
        assert source.run("echo $X").output == "1\n"


def test_a_number_of_children_that_is_none(start: Start) -> None:
    with start() as source:
        with pytest.raises(ValueError):
            source.fork(-1)
        assert source.run("echo on").output == "on\n"
