"""Parking on the native engine: the processes are gone, the memory with them, and what comes back is the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from field.looks import until

from bunshin_gym import Executor, Snapshot, ToolCall, Workspace, WorkspaceError, WorkspaceSpec, engines
from bunshin_gym.engines.native import NativeEngine

pytestmark = pytest.mark.engine("native")

LARGE = 64 << 20
SERVER = """\
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
there = socket.create_connection(server.getsockname())
here = server.accept()[0]
there.sendall(b"on its way")
"""


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace(WorkspaceSpec(call_timeout=60)) as made:
        yield made


def python(workspace: Workspace, code: str) -> str:
    result = workspace.call(ToolCall("python", {"code": code}))
    assert result.ok, result.output
    return result.output.strip()


def test_what_comes_back_is_what_was_parked(workspace: Workspace) -> None:
    workspace.run("cd /tmp; x=5; f() { echo $x; }; echo hi > file; sleep 1000 & job=$!")
    inside = python(workspace, "import os; os.getpid()")
    before, processes = workspace.digest(b"a"), workspace.processes()
    workspace.park()
    assert workspace.parked and workspace.memory().rss == 0
    assert workspace.processes() == processes
    assert not workspace.parked
    assert workspace.digest(b"b").loose == before.loose
    assert workspace.run("f; pwd; cat file; kill -0 $job && echo alive").output == "5\n/tmp\nhi\nalive\n"
    assert python(workspace, "import os; os.getpid()") == inside
    python(workspace, SERVER)
    workspace.park()
    assert python(workspace, "here.recv(100)") == repr(b"on its way")


def test_parked_memory_is_free(workspace: Workspace) -> None:
    python(workspace, f"import hashlib, os; data = os.urandom({LARGE // 2}) * 2; sum = hashlib.md5(data).digest()")
    alive = workspace.holding()
    assert LARGE < alive.own < 2 * LARGE
    workspace.park()
    parked = workspace.holding()
    assert parked.own == 0 and not parked.shared  # image and page store lie on the disk
    assert python(workspace, "hashlib.md5(data).digest() == sum") == "True"
    again = workspace.holding()
    assert sum(again.shared.values()) > LARGE and again.own < LARGE  # the pages are those of the store
    workspace.park()
    assert not workspace.holding().shared


def test_what_a_sibling_shares_stays_in_memory(workspace: Workspace) -> None:
    python(workspace, f"import os; data = os.urandom({LARGE})")
    with workspace.snapshot() as snapshot:
        (child,) = snapshot.fork(1)
        assert isinstance(child, Workspace)
        with child:
            python(child, "mine = os.urandom(1 << 22)")
            child.park()
            shared = child.holding().shared
            assert sum(shared.values()) > LARGE and shared.keys() == snapshot.holding().shared.keys()
            assert python(child, "len(mine), len(data)") == str((1 << 22, LARGE))
            child.park()
    workspace.park()
    child.close()


def test_a_snapshot_that_nobody_uses_can_leave_memory(workspace: Workspace) -> None:
    sizes = []

    def prepare() -> Workspace:
        made = Workspace(workspace.spec)
        python(made, f"import os; data = os.urandom({LARGE})")
        sizes.append(made.holding().own)
        return made

    with ThreadPoolExecutor(4) as pool, closing(Executor(audit=0, memory_budget=2 * LARGE)) as executor:
        for task in range(4):  # the templates of all together are twice the budget
            rollouts = [executor.open(task, prepare) for _ in range(2)]
            for rollout in rollouts:
                executor.run(rollout, ToolCall("shell", {"command": f"x={task}"}), 60)
                rollout.close()
        templates = [cast(Snapshot, kept) for kept in executor.tree.snapshots()]
        assert len(templates) == len(sizes) == 4 and sum(one.spilled > LARGE for one in templates) >= 2
        assert executor.stats.memory_peak < 3 * LARGE
        spilled = next(one for one in templates if one.spilled)
        forks = [fork for made in pool.map(spilled.fork, [1] * 4) for fork in made]
        assert not spilled.spilled and spilled.spill() < LARGE  # its forks hold what is large
        for fork in forks:
            assert isinstance(fork, Workspace)
            with fork:
                assert python(fork, "len(data)") == str(LARGE)
        assert spilled.spill() > LARGE


def test_over_and_over(workspace: Workspace) -> None:
    """Stores and layers do not add up."""
    python(workspace, "import os; data = bytearray(os.urandom(1 << 22))")
    for number in range(18):
        workspace.run(f"echo {number} > number; echo {number} >> all")
        python(workspace, f"data[{number << 12}:] = os.urandom(len(data) - {number << 12})")
        workspace.park()
    assert workspace.run("cat number; wc -l < all").output == "17\n18\n"
    assert sum(workspace.holding().shared.values()) < 64 << 20


def test_where_no_disk_is_it_stays_in_memory(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeEngine, "disk", Path("/dev/shm"))
    python(workspace, "data = b'x' * (1 << 22)")
    workspace.park()
    assert sum(workspace.holding().shared.values()) > 1 << 22
    assert python(workspace, "len(data)") == str(1 << 22)


def test_calls_while_it_is_parked_and_woken_again_and_again(workspace: Workspace) -> None:
    stop = threading.Event()

    def park() -> int:
        parked = 0
        while not stop.is_set():
            try:
                workspace.park()
                parked += 1
            except WorkspaceError:  # it is in use
                continue
        return parked

    workspace.run("n=0")
    with ThreadPoolExecutor(1) as pool:
        parking = pool.submit(park)
        try:
            told = [workspace.run("n=$((n + 1)); echo $n").output for _ in range(10)]
        finally:
            stop.set()
        assert parking.result() > 0
    assert told == [f"{n}\n" for n in range(1, 11)]


def test_closed_while_parked_or_being_parked(workspace: Workspace) -> None:
    other = Workspace(workspace.spec)
    other.run("x=1")
    other.park()
    other.close()
    with ThreadPoolExecutor(1) as pool:
        parking = pool.submit(workspace.park)
        until(lambda: workspace._parking or workspace.parked, 20)
        workspace.close()
        assert parking.exception() is None or isinstance(parking.exception(), WorkspaceError)
    assert not workspace.alive


def test_rollouts_under_a_budget_see_no_difference() -> None:
    def prepare() -> Workspace:
        made = Workspace(WorkspaceSpec(separate_stderr=False))
        made.run("echo prepared > ready")
        return made

    def play(memory_budget: str | None) -> tuple[list[str], int]:
        executor = Executor(audit=0, group=3, memory_budget=memory_budget)
        rollouts = [executor.open("task", prepare) for _ in range(3)]
        said = []
        for number in range(3):
            for k, rollout in enumerate(rollouts):
                call = ToolCall("shell", {"command": f"n=$((n + {k})); echo {k} >> log; cat ready log; echo $n"})
                said.append(executor.run(rollout, call, 60).output)
                code = ToolCall("python", {"code": f"xs = globals().get('xs', []) + [{number * k}]; xs"})
                said.append(executor.run(rollout, code, 60).output)
        for rollout in rollouts:
            rollout.close()
        executor.close()
        return said, executor.stats.parked

    assert engines.get("native").name == "native"
    (free, none), (tight, parked) = play(None), play("1M")
    assert free == tight and parked > 0 and none == 0
