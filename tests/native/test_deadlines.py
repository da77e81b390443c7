"""A hang is a failure: who never answers, is stopped from outside, or is killed midway, holds nobody up for ever."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bunshin_gym import ForkError, Image, Workspace, WorkspaceError, WorkspaceLost, WorkspaceSpec
from bunshin_gym._native.library import init_path

pytestmark = [pytest.mark.engine("native"), pytest.mark.thorough]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class SilentFiles:
    """silent_files.py, mounted."""

    def __init__(self, place: Path) -> None:
        self.place = place
        command = [sys.executable, str(HERE / "silent_files.py"), str(place)]
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._server.stdin and self._server.stdout and self._server.stderr
        if self._server.stdout.readline() != "mounted\n":
            reason = self._server.stderr.read().strip().splitlines()[-1:]
            self.close()
            pytest.skip(f"needs a FUSE file system of its own: {reason}")

    def tell(self, word: str) -> None:
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(word + "\n")
        self._server.stdin.flush()
        assert self._server.stdout.readline() == "well\n"

    def close(self) -> None:
        self._server.communicate(timeout=20)


@pytest.fixture
def silent_files(tmp_path: Path) -> Iterator[SilentFiles]:
    place = tmp_path / "server"
    place.mkdir()
    tmp_path.chmod(0o755)
    files = SilentFiles(place)
    try:
        yield files
    finally:
        files.close()  # ends all that still waits for it


PROGRAM = """
import mmap, os, sys, time
kind, place = sys.argv[1:]
if kind == "directory":
    os.chdir(place)
elif kind != "nothing":
    file = open(place + "/file", "rb", buffering=0)
if kind in ("mapping", "fault"):
    memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory[:5] = b"hello"
    file.close()
    os.closerange(3, 100)  # the mapping's own
os.mkfifo("/tmp/ready-" + kind)
while not os.path.exists("/tmp/go"):
    time.sleep(0.01)
if kind == "read":
    assert file.read(3) == b"sss"
if kind == "fault":
    assert memory[500000:500003] == b"sss"
os.mkfifo("/tmp/done-" + kind)
time.sleep(1000)
"""


def begin(source: Workspace, files: SilentFiles, *kinds: str) -> list[int]:
    source.write_file("/tmp/program.py", PROGRAM.encode())
    pids = []
    for kind in kinds:
        wait = f"for i in $(seq 1000); do [ -p /tmp/ready-{kind} ] && break; sleep 0.01; done"
        said = source.run(f"python3 /tmp/program.py {kind} {files.place} & {wait}; echo $!", timeout=30)
        pids.append(int(said.output.split()[-1]))
    return pids


def refused(source: Workspace, seconds: float) -> str:
    """The error of a seal that must fail within so many seconds, while another workspace forks."""
    others: list[float] = []

    def fork_another() -> None:
        started = time.monotonic()
        with Workspace(WorkspaceSpec()) as other, other.snapshot() as snapshot:
            (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace), child
            child.close()
        others.append(time.monotonic() - started)

    beside = threading.Thread(target=fork_another)
    beside.start()
    started = time.monotonic()
    with pytest.raises(ForkError) as caught:
        source.snapshot()
    assert time.monotonic() - started < seconds
    beside.join(20)
    assert others and others[0] < 15
    assert source.run("echo $n", timeout=5).output == "5\n"
    return str(caught.value)


@pytest.mark.parametrize("kind", ["read", "fault"])
def test_a_sleep_that_nothing_interrupts(kind: str, silent_files: SilentFiles) -> None:
    with Workspace(WorkspaceSpec(image=Image.host(expose=[silent_files.place]))) as source:
        try:
            source.run("n=5")
            (pid,) = begin(source, silent_files, kind)
            silent_files.tell("silent")
            source.run("touch /tmp/go; sleep 0.3")
            said = refused(source, 12)
            assert f"pid {pid} (python3) did not stop in time" in said and "state D" in said, said
            assert not source.run(f"ls /tmp/done-{kind} 2>/dev/null").output
        finally:
            silent_files.tell("answer")
        done = source.run(f"for i in $(seq 1000); do [ -p /tmp/done-{kind} ] && break; sleep 0.01; done; ls /tmp/done*")
        assert done.output == f"/tmp/done-{kind}\n"
        (child,) = source.fork(1)
        assert isinstance(child, Workspace), child
        with child:
            assert child.run("echo $n").output == "5\n"


def test_files_whose_server_does_not_answer(silent_files: SilentFiles) -> None:
    """To look at them would put pid 1 to sleep. Who holds one is named; where nobody does, the seal succeeds."""
    with Workspace(WorkspaceSpec(image=Image.host(expose=[silent_files.place]))) as source:
        try:
            source.run("n=5")
            kinds = ("descriptor", "mapping", "directory")
            words = ("fd", "mapped", "directory")
            pids = dict(zip(begin(source, silent_files, *kinds), words, strict=True))
            with source.snapshot() as before:
                silent_files.tell("silent")
                while pids:
                    said = refused(source, 8)
                    pid = next(pid for pid in pids if f"pid {pid} (python3) has /" in said)
                    assert pids.pop(pid) in said and str(silent_files.place) in said and "fuse" in said
                    source.run(f"kill -9 {pid}; wait {pid}", timeout=5)
                source.snapshot().close()
                assert source.run("echo $n", timeout=5).output == "5\n"
                silent_files.tell("answer")
                (child,) = before.fork(1)
                assert isinstance(child, Workspace), child
                with child:
                    child.run("touch /tmp/go")
                    done = "for i in $(seq 1000); do set -- /tmp/done-*; [ $# = 3 ] && break; sleep 0.01; done; echo $#"
                    assert child.run(done, timeout=30).output == "3\n"
        finally:
            silent_files.tell("answer")


# ---- stopped and killed from outside ----


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def keeper() -> int:
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "bunshin-keeper\n":
                return pid
    raise AssertionError("there is no keeper")


def in_the_middle(work: Callable[[], object], delay: float, find: Callable[[], list[int]], number: int) -> object:
    """What work returns or raises when those that `find` finds get a signal after `delay`."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    time.sleep(delay)
    targets = find()
    while not targets and worker.is_alive():
        targets = find()
    for pid in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    worker.join(90)
    assert outcome, "it hangs"
    return outcome[0]


def assert_clear(error: object) -> None:
    assert isinstance(error, (ForkError, WorkspaceLost)), repr(error)
    assert len(str(error)) > 20 and "\n" not in str(error)


@pytest.fixture
def other() -> Iterator[Workspace]:
    with Workspace(WorkspaceSpec()) as workspace:
        workspace.run("n=6")
        yield workspace
        (child,) = workspace.fork(1)
        assert isinstance(child, Workspace), child
        with child:
            assert child.run("echo $n").output == "6\n"


def crowd(source: Workspace) -> None:
    """A seal and a fork of this take long enough to be hit in the middle."""
    source.run("n=5; for i in $(seq 40); do sleep 1000 & done 2>/dev/null")


def test_pid_1_is_killed_in_a_seal(other: Workspace) -> None:
    for step in range(6):
        known = set(children(keeper()))
        with Workspace(WorkspaceSpec()) as source:
            crowd(source)
            (pid,) = set(children(keeper())) - known
            outcome = in_the_middle(source.snapshot, step * 0.004, lambda pid=pid: [pid], signal.SIGKILL)
            if isinstance(outcome, Exception):
                assert_clear(outcome)
            else:
                outcome.close()  # type: ignore[attr-defined]
                assert source.run("echo $n").output == "5\n"  # it goes on in the fork
    assert other.run("echo $n").output == "6\n"


def test_pid_1_of_a_fork_is_killed(other: Workspace) -> None:
    hits = 0
    with Workspace(WorkspaceSpec()) as source:
        crowd(source)
        with source.snapshot() as snapshot:
            time.sleep(0.2)  # the source's old tree is gone
            for step in range(6):
                known = set(children(keeper()))

                def new(known: set[int] = known) -> list[int]:
                    return list(set(children(keeper())) - known)

                outcome = in_the_middle(lambda: snapshot.fork(1)[0], step * 0.006, new, signal.SIGKILL)
                if isinstance(outcome, WorkspaceError):
                    hits += 1
                    assert_clear(outcome)
                elif isinstance(outcome, Workspace):
                    outcome.close()
                else:
                    raise AssertionError(repr(outcome))
            assert hits
            (child,) = snapshot.fork(1)
            assert isinstance(child, Workspace), child
            with child:
                assert len(child.processes()) == len(source.processes())
        assert source.run("echo $n").output == "5\n"


OWNER = """
import os, sys, threading, time
sys.path.insert(0, {here!r})
from bunshin_gym import ExitReason, Workspace, WorkspaceSpec
from test_deadlines import crowd, in_the_middle, keeper, assert_clear
import signal
source = Workspace(WorkspaceSpec())
crowd(source)
if sys.argv[1] == "keeper":
    snapshot = source.snapshot()
    work = source.snapshot if sys.argv[2] == "seal" else lambda: snapshot.fork(1)[0]
    outcome = in_the_middle(work, float(sys.argv[3]), lambda: [keeper()], signal.SIGKILL)
    if isinstance(outcome, Exception):
        assert_clear(outcome)
    begin = time.monotonic()
    assert source.run("echo $n").exit_reason is ExitReason.WORKSPACE_LOST
    source.close()
    assert time.monotonic() - begin < 15
    print("well", flush=True)
else:
    print("ready", flush=True)
    while True:
        for child in source.fork(2):
            child.close()
"""


def own_processes(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (path / "mountinfo").read_text() and path.name != str(os.getpid()):
                found.append(f"{path.name} {(path / 'comm').read_text().strip()}")
    return found


def start_owner(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    state = folder / "state"
    state.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", OWNER.format(here=str(HERE)), *arguments],
        cwd=ROOT, env={**os.environ, "BUNSHIN_STATE_DIR": str(state)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("what", ["seal", "fork"])
def test_the_keeper_is_killed(what: str, tmp_path: Path) -> None:
    for delay in ("0.003", "0.015"):
        owner = start_owner(tmp_path, "keeper", what, delay)
        said, wrong = owner.communicate(timeout=100)
        assert said == "well\n", wrong[-2000:]
    assert not own_processes(str(tmp_path))
    # A keeper that was killed cannot tidy up: the next one does.
    owner = start_owner(tmp_path, "owner")
    assert owner.stdout and owner.stdout.readline() == "ready\n"
    owner.kill()
    owner.communicate()
    assert_nothing_left(tmp_path)


def assert_nothing_left(folder: Path) -> None:
    end = time.monotonic() + 10
    while (left := [*own_processes(str(folder)), *map(str, (folder / "state").iterdir())]) and time.monotonic() < end:
        time.sleep(0.02)
    assert not left, left


def test_the_owner_is_killed(tmp_path: Path) -> None:
    for delay in (0.002, 0.03, 0.1):
        owner = start_owner(tmp_path, "owner")
        assert owner.stdout and owner.stdout.readline() == "ready\n"
        time.sleep(delay)
        owner.kill()
        owner.communicate()
        assert_nothing_left(tmp_path)


STOPPED = """
import os, sys, tempfile, time
from pathlib import Path
sys.path[:0] = [{root!r}, {here!r}]
import sweep
folder = tempfile.TemporaryDirectory()
board = sweep.prepare(Path(folder.name), Path(sys.argv[1]))
from bunshin_gym import ForkError, Workspace, WorkspaceSpec
from test_deadlines import children, crowd, keeper
with Workspace(WorkspaceSpec()) as source:
    crowd(source)
    snapshot = source.snapshot()
    time.sleep(0.3)
    sweep.arm(board)
    snapshot.fork(1)[0].close()
    sweep.disarm(board)
    calls = [(call.number, call.place, call.pid) for call in board.log[: board.logged]]
    first = {{}}
    for number, place, pid in calls:
        first.setdefault((number, place), pid)
    outside = {{calls[0][2], keeper()}}
    pids = list(dict.fromkeys(pid for _, _, pid in calls if pid not in outside))
    stubs = set(pids[1:])  # the first is pid 1 of the fork
    where = [key for key in first if {{pid for n, p, pid in calls if (n, p) == key}} <= stubs]
    number, place = [key for key in where if key[1] >= int(sys.argv[2])][0]
    time.sleep(0.3)
    before = set(children(keeper()))
    sweep.arm(board, number, place, action=sweep.STOP)
    begin = time.monotonic()
    (child,) = snapshot.fork(1)
    took = time.monotonic() - begin
    assert board.fired and isinstance(child, ForkError), child
    assert 5 < took < 45 and "state T" in str(child), (took, child)
    sweep.disarm(board)
    assert not Path(f"/proc/{{board.pid}}").exists()
    end = time.monotonic() + 5  # its directories are removed by a child of the keeper
    while (left := set(children(keeper())) - before) and time.monotonic() < end:
        time.sleep(0.01)
    assert not left, left
    assert source.run("echo $n").output == "5\\n"
    (child,) = snapshot.fork(1)
    assert child.run("echo $n").output == "5\\n"
    child.close()
    snapshot.close()
print("well")
"""


@pytest.mark.timeout(150)
@pytest.mark.parametrize("place", [0, pytest.param(1 << 33, marks=pytest.mark.thorough)], ids=["stub", "restorer"])
def test_a_half_made_process_is_stopped_from_outside(place: int) -> None:
    program = STOPPED.format(root=str(ROOT), here=str(HERE))
    build = str(Path(init_path()).parent.resolve())
    done = subprocess.run(
        [sys.executable, "-c", program, build, str(place)], cwd=ROOT, capture_output=True, text=True, timeout=140
    )
    assert done.stdout == "well\n", done.stderr[-2000:]
