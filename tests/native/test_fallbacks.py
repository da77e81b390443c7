"""Every fallback has a switch: what stands in for an ability that older kernels lack is tried here, on this kernel."""

from __future__ import annotations

import pytest

from bunshin_gym.tools import ToolCall
from bunshin_gym.workspace import Workspace, WorkspaceSpec

TIMERS = """
import ctypes, os, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
ids = []
signal.signal(signal.SIGALRM, signal.SIG_IGN)
for number in range(5):
    timer = ctypes.c_int()
    assert libc.syscall(222, 1, None, ctypes.byref(timer)) == 0
    ids.append(timer.value)
for timer in ids[:3]:
    assert libc.syscall(226, timer) == 0  # timer_delete: the ids that are left do not start at 0
setting = struct.pack("qqqq", 0, 0, 1000, 0)
assert all(libc.syscall(223, timer, 0, setting, None) == 0 for timer in ids[3:])
"""
ASK = """
left = [ctypes.create_string_buffer(32) for _ in ids[3:]]
answers = [libc.syscall(224, timer, buffer) for timer, buffer in zip(ids[3:], left)]
answers, [900 < struct.unpack("qqqq", buffer.raw)[2] <= 1000 for buffer in left]
"""


@pytest.mark.parametrize(
    "without",
    [
        "",
        "pagemap-scan",
        "overlay-one-by-one",
        "timer-ids",
        "ipc-ids",
        "pagemap-scan,overlay-one-by-one,timer-ids,time-namespace,ipc-ids",
    ],
)
def test_a_fork_of_a_fork_without(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUNSHIN_WITHOUT", without)
    with Workspace(WorkspaceSpec()) as source:
        assert source.run("n=1; cd /tmp; echo one > file; sleep 1000 &").exit_code == 0
        assert (
            source.call(
                ToolCall("python", {"code": TIMERS + "import array; big = array.array('q', range(300000))"})
            ).exit_code
            == 0
        )
        workspaces = [source]
        for generation in range(3):
            (fork,) = workspaces[-1].fork(1)
            assert isinstance(fork, Workspace), fork
            workspaces.append(fork)
            result = fork.run("n=$((n+1)); echo $n; cat file; echo more >> file; jobs -r | wc -l")
            assert result.output.split() == [str(generation + 2), "one", *["more"] * generation, "1"]
            python = fork.call(ToolCall("python", {"code": f"big[{generation}] = 7; sum(big)"}))
            assert python.output.strip() == str(sum(range(300000)) + sum(7 - i for i in range(generation + 1)))
            assert fork.call(ToolCall("python", {"code": ASK})).output.strip() == "([0, 0], [True, True])"
        for fork in workspaces[1:]:
            fork.close()
