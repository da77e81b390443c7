"""What victims cannot see of shared memory and System V objects: what a seal stores, and what a failed one leaves."""

from __future__ import annotations

import pytest

from bunshin_gym import ForkError, ToolCall, Workspace, WorkspaceSpec

MEBIBYTE = 1 << 20

SEGMENT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
size = 16 << 20
segment = libc.shmget(0x5e6, ctypes.c_size_t(size), 0o1600)
memory = libc.shmat(segment, None, 0)
ctypes.memmove(memory, os.urandom(size), size)
file = os.memfd_create("content")
os.write(file, os.urandom(size))
open("/dev/shm/named", "wb").write(os.urandom(size))
"""
STATE = "[line.split()[:8] for line in open('/proc/sysvipc/shm').readlines()[1:]]"


def ask(workspace: Workspace, code: str) -> str:
    result = workspace.call(ToolCall("python", {"code": code}))
    assert result.exit_code == 0, result.output
    return result.output


def test_shared_memory_that_nobody_wrote_is_stored_once() -> None:
    with Workspace(WorkspaceSpec()) as workspace:
        ask(workspace, SEGMENT)
        digest = "import hashlib; hashlib.sha256(ctypes.string_at(memory, size) + os.pread(file, size, 0)).hexdigest()"
        before = ask(workspace, digest)
        with workspace.snapshot() as first:
            assert first.report.bytes_copied > 48 * MEBIBYTE
        with workspace.snapshot() as second:
            assert second.report.bytes_copied < 8 * MEBIBYTE, second.report
            assert second.report.bytes_shared > 48 * MEBIBYTE
            ask(workspace, "ctypes.memmove(memory + (8 << 20), b'w' * (2 << 20), 2 << 20)")
            ask(workspace, "os.pwrite(file, bytes(3 << 20), 0)")  # zeros are not stored
            with workspace.snapshot() as third:
                assert 2 * MEBIBYTE < third.report.bytes_copied < 10 * MEBIBYTE, third.report
                (fork,) = third.fork(1)
            assert isinstance(fork, Workspace)
            with fork:
                assert ask(fork, digest) != before
                assert ask(fork, "ctypes.string_at(memory + (8 << 20), 2 << 20) == b'w' * (2 << 20)") == "True\n"
                assert ask(fork, "os.pread(file, 3 << 20, 0) == bytes(3 << 20)") == "True\n"
            (fork,) = second.fork(1)
            assert isinstance(fork, Workspace)
            with fork:
                assert ask(fork, digest) == before


@pytest.mark.parametrize("fault", ["seal:3", "seal:5", "rebuild:2", "rebuild:18"])
def test_a_fork_that_fails_leaves_segments_as_they_were(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Workspace(WorkspaceSpec()) as workspace:
        ask(workspace, SEGMENT)
        child = "import os\nif os.fork() == 0:\n    libc.shmdt(ctypes.c_void_p(memory))\n    os._exit(0)\nos.wait()[1]"
        for code in ("0", child):  # last touched by who lives, and by who is dead
            ask(workspace, code)
            state = ask(workspace, STATE)
            with monkeypatch.context() as patch:
                patch.setenv("BUNSHIN_FAULT", fault)
                with pytest.raises(ForkError):
                    workspace.snapshot()
            assert ask(workspace, STATE) == state
        workspace.snapshot().close()
        assert ask(workspace, STATE) == state
